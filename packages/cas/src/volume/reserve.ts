/**
 * Keeps a part of a disk free for what makes room again: marks of removal, compaction and the index all write before they
 * free anything, and on a disk that is full to the last byte nothing could ever be given back.
 *
 * Promise: `isReached` says whether new objects must wait outside. Bound: one measurement at a time; between two, what was
 * written since counts as gone, at most an eighth of the reserve or `MEASURE_EVERY_MS`.
 */
import { sched } from '@ron/kernel';
import type { DiskRoom, FileSystem } from '@ron/log';

const MIB = 1024 * 1024;
const BYTES_MAX = 256 * MIB;
/** Of the size of the disk. */
const SHARE = 1 / 16;
const MEASURE_EVERY_MS = 1000;
/** When the reserve is reached, freed space should be noticed soon. */
const MEASURE_EVERY_REACHED_MS = 50;

/** How much of a disk is kept. */
export const reserveBytes = (total_bytes: number): number => Math.min(total_bytes * SHARE, BYTES_MAX);

export class Reserve {
  readonly #measure: () => Promise<DiskRoom | undefined>;
  #room: DiskRoom | undefined;
  #written_bytes = 0;
  #measured_ms = -Infinity;
  #measuring: Promise<void> | undefined;

  constructor(fs: FileSystem, dir: string) {
    this.#measure = async () => await fs.room?.(dir);
  }

  get bytes(): number {
    return this.#room === undefined ? 0 : reserveBytes(this.#room.total_bytes);
  }

  /** Whether `bytes` more would be taken from what is kept free. Measures again, for the next who asks, when that is due. */
  isReached(bytes: number): boolean {
    const room = this.#room;
    const isReached = room !== undefined && room.free_bytes - this.#written_bytes - bytes < this.bytes;
    const every_ms = isReached ? MEASURE_EVERY_REACHED_MS : MEASURE_EVERY_MS;
    const isMuchWritten = room !== undefined && this.#written_bytes > this.bytes / 8;
    if (isMuchWritten || sched.now_ms() - this.#measured_ms >= every_ms) void this.measure();
    return isReached;
  }

  wrote(bytes: number): void {
    this.#written_bytes += bytes;
  }

  /** Never rejects: a disk that cannot even tell is found out by its writes. */
  measure(): Promise<void> {
    this.#measuring ??= this.#look().finally(() => (this.#measuring = undefined));
    return this.#measuring;
  }

  async #look(): Promise<void> {
    this.#measured_ms = sched.now_ms();
    const written_bytes = this.#written_bytes;
    try {
      this.#room = await this.#measure();
      this.#written_bytes -= written_bytes;
    } catch {
      // What it said last stands; the next look may know more.
    }
  }
}
