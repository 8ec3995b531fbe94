/**
 * Opens MBTiles packs.
 *
 * Contract: as `PackOpener`. A file is verified and hashed in a thread at each mount, then opened in the threads that read tiles.
 * The address is that of the file whose identity the pack checks at each read. There is no sidecar: reads are not compared with
 * hashes, so a false one would give the pack a false address.
 * Bound: one verification at a time; further ones wait, at most `WAITING_MAX`. Overflow: `busy`.
 * Cancellation: by the signal; the thread of a verification is terminated then.
 */
import { stat } from 'node:fs/promises';
import { BlockingPool, orAborted, RonError, type Deadline } from '@ron/kernel';
import { requireExpected } from '../hashes/expected-address.ts';
import type { OpenPack, OpenPackInit, PackOpener } from '../pack.ts';
import { MbtilesPack } from './mbtiles-pack.ts';
import { ReadThreads } from './read-threads.ts';
import type { FileIdentity, VerifiedMbtiles } from './thread/calls.ts';

const THREAD = new URL('./thread/mbtiles-thread.ts', import.meta.url);
const WAITING_MAX = 64;

export interface MbtilesOpenerInit {
  /** A new deadline for one read. */
  readonly readDeadline: () => Deadline;
  /** The module of the threads. For tests. */
  readonly module?: URL;
}

export class MbtilesOpener implements PackOpener {
  readonly #verifier: BlockingPool;
  readonly #threads: ReadThreads;
  #ids = 0;

  constructor({ readDeadline, module = THREAD }: MbtilesOpenerInit) {
    this.#verifier = new BlockingPool('edge.mbtiles.verify', { threads: 1, queue_max: WAITING_MAX, module });
    this.#threads = new ReadThreads({ module, deadline: readDeadline });
  }

  async open({ path, expect, onDamage, signal }: OpenPackInit): Promise<OpenPack> {
    const identity = await orAborted(identityOf(path), signal);
    const verified = await this.#verifier.run<VerifiedMbtiles>('verify', [{ path, identity }], signal);
    requireExpected(verified.address, expect);
    this.#ids += 1;
    const file = { id: this.#ids, path, identity };
    await this.#threads.open(file, signal);
    const info = { format: 'mbtiles', size: Number(identity.size), ...verified } as const;
    return new MbtilesPack({ info, file, threads: this.#threads, onDamage });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#verifier.close(), this.#threads.close()]);
  }
}

async function identityOf(path: string): Promise<FileIdentity> {
  const stats = await stat(path, { bigint: true });
  // A pipe would keep the thread waiting for its writer.
  if (!stats.isFile()) throw new RonError('validation', 'it is not a regular file');
  const { dev, ino, size, mtimeNs } = stats;
  return { device: dev, inode: ino, size, mtime_ns: mtimeNs };
}
