/**
 * Reserves a part of the disk for writes that must succeed when others are refused: removals and compaction write before
 * they free space, and an audit log must record signatures on a disk that other entries filled.
 *
 * Contract: `isReached` returns whether ordinary writes must be refused. Bound: one measurement at a time. Between two of
 * them, written bytes are subtracted from the free space, for at most an eighth of the reserve or `MEASURE_EVERY_MS`.
 */
import { sched } from '@ron/kernel';
import type { DiskRoom } from './file-system.ts';

const MIB = 1024 * 1024;
const BYTES_MAX = 256 * MIB;
/** Of the size of the disk. */
const SHARE = 1 / 16;
const MEASURE_EVERY_MS = 1000;
/** When the reserve is reached, freed space should be noticed soon. */
const MEASURE_EVERY_REACHED_MS = 50;

/** The size of the reserve: never more than half of the disk. */
export const reserveBytes = (total_bytes: number, bytes_max = BYTES_MAX, bytes_min = 0): number =>
  Math.min(Math.max(total_bytes * SHARE, bytes_min), bytes_max, total_bytes / 2);

export class Reserve {
  readonly #measure: () => Promise<DiskRoom | undefined>;
  readonly #bytes_max: number;
  readonly #bytes_min: number;
  #room: DiskRoom | undefined;
  #written_bytes = 0;
  #measured_ms = -Infinity;
  #measuring: Promise<void> | undefined;

  /** `measure` returns the room of the disk, if known. */
  constructor(measure: () => Promise<DiskRoom | undefined>, bytes_max = BYTES_MAX, bytes_min = 0) {
    this.#measure = measure;
    this.#bytes_max = bytes_max;
    this.#bytes_min = bytes_min;
  }

  get bytes(): number {
    return this.#room === undefined ? 0 : reserveBytes(this.#room.total_bytes, this.#bytes_max, this.#bytes_min);
  }

  /** Free space by the last measurement, less the bytes written since; Infinity if it is unknown. */
  get free_bytes(): number {
    return this.#room === undefined ? Infinity : this.#room.free_bytes - this.#written_bytes;
  }

  /** Whether `bytes` more would use the reserve. Starts a new measurement, for later calls, when one is due. */
  isReached(bytes: number): boolean {
    const room = this.#room;
    const isReached = this.free_bytes - bytes < this.bytes;
    const every_ms = isReached ? MEASURE_EVERY_REACHED_MS : MEASURE_EVERY_MS;
    const isMuchWritten = room !== undefined && this.#written_bytes > this.bytes / 8;
    if (isMuchWritten || sched.now_ms() - this.#measured_ms >= every_ms) void this.measure();
    return isReached;
  }

  wrote(bytes: number): void {
    this.#written_bytes += bytes;
  }

  /** Never rejects: a broken disk fails its writes anyway. */
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
      // The last measurement stays valid until the next one succeeds.
    }
  }
}
