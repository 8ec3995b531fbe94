/**
 * The ids of settled deliveries that no settled record names yet.
 *
 * Contract: an id that is not written, or whose record no sync covers, is sent again after a crash, as a duplicate.
 * Bound: `IDS_MAX`, 16 bytes each; further ids are not written. Records leave the space of the moves alone (spool-limits.ts):
 * on a full spool ids are not written.
 */
import { recordBytes, type SegmentLog } from '@ron/log';
import { ULID_BYTES } from '@ron/proto';
import { encodeSettled, SETTLED_IDS_MAX } from './delivery-record.ts';

const IDS_MAX = 65_536;
const IDS_MIN = 128;

export class SettledIds {
  #ids = Buffer.alloc(IDS_MIN * ULID_BYTES);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(id: Uint8Array): void {
    if (this.#size >= IDS_MAX) return;
    const at = this.#size * ULID_BYTES;
    if (at === this.#ids.length) this.#ids = Buffer.concat([this.#ids, Buffer.alloc(at)]);
    this.#ids.set(id, at);
    this.#size += 1;
  }

  /** Appends them without a sync. One call at a time. Without `hasRoom` for a record, its ids are forgotten. */
  async write(log: SegmentLog, hasRoom: (bytes: number) => boolean, signal: AbortSignal): Promise<void> {
    while (this.#size > 0) {
      const count = Math.min(this.#size, SETTLED_IDS_MAX);
      const record = encodeSettled(Buffer.from(this.#ids.subarray(0, count * ULID_BYTES)));
      if (hasRoom(recordBytes(record.payload.length, 0))) await log.append([record], signal, { durable: false });
      // Further ids may have been added meanwhile.
      this.#ids.copyWithin(0, count * ULID_BYTES, this.#size * ULID_BYTES);
      this.#size -= count;
    }
  }
}
