/**
 * Whether a volume could take a write now, seen from outside: for `/readyz`, so that a load balancer that stopped sending
 * writes learns when it may send them again.
 *
 * Promise: `problem` tells why writes fail, or would: what the last write met, unless a later look at the directory shows
 * that it is over; and the result of the last look, even without a write since.
 * Bound: one look at a time, `LOOK_MS_MAX`. Cancellation: none; a look ends by itself, or by its time.
 */
import { constants } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import { reserveBytes, type Volume, type VolumeState } from '@ron/cas';
import { Deadline } from '@ron/kernel';
import { diskError } from '@ron/log';

const LOOK_MS_MAX = 5000;

export class VolumeWatch {
  readonly #volume: Volume;
  readonly #dir: string | undefined;
  /** What the last look showed. */
  #seen: string | undefined;
  /** The state that was in force when a look showed that there is room and leave to write. */
  #disproved: VolumeState | undefined;
  #looking: Promise<void> | undefined;

  /** `dir`: where the volume lies; undefined when it is in memory. */
  constructor(volume: Volume, dir: string | undefined) {
    this.#volume = volume;
    this.#dir = dir;
  }

  get problem(): string | undefined {
    if (this.#seen !== undefined) return this.#seen;
    const { state } = this.#volume;
    return state.condition === 'ok' || state === this.#disproved ? undefined : state.reason;
  }

  /** One that takes too long counts as a failure and goes on; the next look waits until it has ended. */
  async look(): Promise<void> {
    const dir = this.#dir;
    if (dir === undefined) return;
    this.#looking ??= this.#look(dir).finally(() => (this.#looking = undefined));
    using deadline = Deadline.after('volumes.watch', LOOK_MS_MAX);
    await deadline.within(this.#looking).catch(() => void (this.#seen = `${dir}: it does not answer`));
  }

  async #look(dir: string): Promise<void> {
    const { state } = this.#volume;
    this.#seen = await whyNotWritable(dir);
    // A disk that fails in other ways shows nothing from outside: only a write can tell that it works again.
    const isVisible = state.condition === 'full' || state.condition === 'read_only';
    if (this.#seen === undefined && isVisible) this.#disproved = state;
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
