/**
 * Opens MBTiles packs.
 *
 * Contract: as `PackOpener`. A file is hashed and verified in threads, then opened in the threads that read tiles. The address is
 * that of the file whose identity the pack checks at each read.
 * Bound: one verification at a time; further ones wait, at most `WAITING_MAX`. Overflow: `busy`.
 * Cancellation: by the signal; the thread of a verification is terminated then.
 */
import { stat } from 'node:fs/promises';
import { BlockingPool, orAborted, RonError, type Deadline } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { OpenPack, OpenPackInit, PackOpener } from '../pack.ts';
import { MbtilesPack } from './mbtiles-pack.ts';
import { ReadThreads } from './read-threads.ts';
import type { Description, FileIdentity } from './thread/calls.ts';

const THREAD = new URL('./thread/mbtiles-thread.ts', import.meta.url);
const WAITING_MAX = 64;

/** The hashes of a file, from its sidecar or computed in a thread. */
export interface FileHashes {
  hashesOf(init: {
    readonly path: string;
    readonly sidecar: string | undefined;
    readonly expect: Address | undefined;
    readonly signal: AbortSignal;
  }): Promise<{ readonly address: Address; readonly size: number }>;
}

export interface MbtilesOpenerInit {
  readonly hashes: FileHashes;
  /** A new deadline for one read. */
  readonly readDeadline: () => Deadline;
  /** The module of the threads. For tests. */
  readonly module?: URL;
}

export class MbtilesOpener implements PackOpener {
  readonly #hashes: FileHashes;
  readonly #verifier: BlockingPool;
  readonly #threads: ReadThreads;
  #ids = 0;

  constructor({ hashes, readDeadline, module = THREAD }: MbtilesOpenerInit) {
    this.#hashes = hashes;
    this.#verifier = new BlockingPool('edge.mbtiles.verify', { threads: 1, queue_max: WAITING_MAX, module });
    this.#threads = new ReadThreads({ module, deadline: readDeadline });
  }

  async open({ path, sidecar, expect, onDamage, signal }: OpenPackInit): Promise<OpenPack> {
    const identity = await orAborted(identityOf(path), signal);
    const description = await this.#verifier.run<Description>('verify', [{ path, identity }], signal);
    const { address } = await this.#hashes.hashesOf({ path, sidecar, expect, signal });
    await orAborted(requireUnchanged(path, identity), signal);
    this.#ids += 1;
    const file = { id: this.#ids, path, identity };
    await this.#threads.open(file, signal);
    const info = { format: 'mbtiles', address, size: Number(identity.size), ...description } as const;
    return new MbtilesPack({ info, file, threads: this.#threads, onDamage });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#verifier.close(), this.#threads.close()]);
  }
}

async function identityOf(path: string): Promise<FileIdentity> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return { device: dev, inode: ino, size, mtime_ns: mtimeNs };
}

async function requireUnchanged(path: string, before: FileIdentity): Promise<void> {
  const after = await identityOf(path);
  const isSame = after.device === before.device && after.inode === before.inode && after.size === before.size;
  if (!isSame || after.mtime_ns !== before.mtime_ns) {
    throw new RonError('validation', 'the file changed while it was verified');
  }
}
