/**
 * Whether a volume could take a write now, probed from outside: for `/readyz`, so that a load balancer that stopped sending
 * writes learns when it may send them again.
 *
 * Contract: `problem` is the reason why writes fail or would fail: the error of the last write, until a later probe of the
 * directory disproves it, or the finding of the last probe, even without a write since.
 * Bound: one probe at a time, for at most `PROBE_MS_MAX`.
 */
import { constants } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import type { Volume, VolumeState } from '@ron/cas';
import { reserveBytes } from '@ron/log';
import { Deadline } from '@ron/kernel';
import { diskError } from '@ron/log';

const PROBE_MS_MAX = 5000;

export class WriteProbe {
  readonly #volume: Volume;
  readonly #dir: string | undefined;
  /** The finding of the last probe. */
  #found: string | undefined;
  /** The state that was in force when a probe found space and write permission. */
  #disproved: VolumeState | undefined;
  #probing: Promise<void> | undefined;

  /** `dir`: the directory of the volume; undefined when it is in memory. */
  constructor(volume: Volume, dir: string | undefined) {
    this.#volume = volume;
    this.#dir = dir;
  }

  get problem(): string | undefined {
    if (this.#found !== undefined) return this.#found;
    const { state } = this.#volume;
    return state.condition === 'ok' || state === this.#disproved ? undefined : state.reason;
  }

  /** A probe that times out counts as a failure and continues; the next call waits for it. */
  async probe(): Promise<void> {
    const dir = this.#dir;
    if (dir === undefined) return;
    this.#probing ??= this.#probe(dir).finally(() => (this.#probing = undefined));
    using deadline = Deadline.after('volumes.watch', PROBE_MS_MAX);
    await deadline.within(this.#probing).catch(() => void (this.#found = `${dir}: it does not answer`));
  }

  async #probe(dir: string): Promise<void> {
    const { state } = this.#volume;
    this.#found = await whyNotWritable(dir);
    // Other failures of a disk are not visible from outside: only a write can show that it works again.
    const isVisible = state.condition === 'full' || state.condition === 'read_only';
    if (this.#found === undefined && isVisible) this.#disproved = state;
  }
}

async function whyNotWritable(dir: string): Promise<string | undefined> {
  try {
    await access(dir, constants.W_OK);
    const { bavail, blocks, bsize } = await statfs(dir);
    const free_bytes = bavail * bsize;
    const isFull = free_bytes <= reserveBytes(blocks * bsize);
    return isFull ? `${dir}: the disk is full, ${free_bytes} bytes are free` : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return `${dir}: the directory is gone`;
    return `${dir}: ${diskError(error).message}`;
  }
}
