/**
 * Hashes files in a thread and keeps the results in sidecars.
 *
 * Contract: the address of the file at a path, with the file's identity so that the caller can check that it opened the same
 * one. [edge I-7] The event loop never waits for the disk or the hash.
 * Bound: one thread, `QUEUE_MAX` waiting calls. Overflow: `busy`. Cancellation: by the signal, which ends the thread.
 */
import { BlockingPool } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { requireExpected } from './expected-address.ts';
import { GroupTree } from './group-tree.ts';
import type { HashedFile } from './thread/hash-thread.ts';

const QUEUE_MAX = 64;

export interface HashesInit {
  readonly path: string;
  /** Undefined: the hashes are not kept. */
  readonly sidecar: string | undefined;
  /** Rejects with `address_mismatch` if the file has another address. */
  readonly expect?: Address | undefined;
  readonly signal: AbortSignal;
}

export interface FileHashes extends Omit<HashedFile, 'tree' | 'sidecar_problem'> {
  readonly address: Address;
  readonly groups: GroupTree;
}

/** Called if a sidecar cannot be written: the pack is usable, but the next start reads it in full. */
export type SidecarFailed = (path: string, problem: string) => void;

export class HashThreads implements AsyncDisposable {
  readonly #pool: BlockingPool;
  readonly #onSidecarFailed: SidecarFailed | undefined;

  constructor(onSidecarFailed?: SidecarFailed) {
    this.#onSidecarFailed = onSidecarFailed;
    const module = new URL('./thread/hash-thread.ts', import.meta.url);
    this.#pool = new BlockingPool('pack.hash', { threads: 1, queue_max: QUEUE_MAX, module });
  }

  async hashesOf({ path, sidecar, expect, signal }: HashesInit): Promise<FileHashes> {
    const { tree, sidecar_problem, ...file } = await this.#pool.run<HashedFile>(
      'hashesOfFile',
      [path, sidecar],
      signal,
    );
    if (sidecar_problem !== undefined) this.#onSidecarFailed?.(path, sidecar_problem);
    const groups = new GroupTree(tree);
    requireExpected(groups.address, expect);
    return { ...file, address: groups.address, groups };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.close();
  }
}
