/**
 * The bytes of live records in each segment of the log.
 *
 * Bound: one entry for each segment with a live message or dead letter.
 */
import { recordBytes } from '@ron/log';
import type { MessagePlace } from '../store/records.ts';

interface Use {
  bytes: number;
  messages: number;
}

export class SegmentUse {
  readonly #segments = new Map<number, Use>();
  #total_bytes = 0;

  get total_bytes(): number {
    return this.#total_bytes;
  }

  bytesOf(segment: number): number {
    return this.#segments.get(segment)?.bytes ?? 0;
  }

  add(place: MessagePlace): void {
    let use = this.#segments.get(place.segment);
    if (use === undefined) {
      use = { bytes: 0, messages: 0 };
      this.#segments.set(place.segment, use);
    }
    this.#count(use, place, 1);
  }

  remove(place: MessagePlace): void {
    const use = this.#segments.get(place.segment);
    if (use === undefined) return;
    this.#count(use, place, -1);
    if (use.messages === 0) this.#segments.delete(place.segment);
  }

  #count(use: Use, { payload_bytes, meta_bytes }: MessagePlace, by: 1 | -1): void {
    const bytes = by * recordBytes(payload_bytes, meta_bytes);
    use.bytes += bytes;
    use.messages += by;
    this.#total_bytes += bytes;
  }
}
