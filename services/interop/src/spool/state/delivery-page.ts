/**
 * The columns of some rows of the delivery table, in bytes for each row:
 *
 *     seq 8   received_ms 8   segment 4   offset 4   payload bytes 4   next, previous of the provider 8
 *     hash links of key and id 8   meta bytes 2   provider 2   flags 1   key 32   id 16                    = 97
 */
import { ULID_BYTES } from '@ron/proto';
import { KEY_BYTES } from '../store/delivery-record.ts';

const ROW_BYTES = 97;

export class DeliveryPage {
  readonly seq: Float64Array;
  readonly received_ms: Float64Array;
  readonly segment: Uint32Array;
  readonly offset: Uint32Array;
  readonly payload_bytes: Uint32Array;
  readonly next: Int32Array;
  readonly previous: Int32Array;
  readonly key_next: Int32Array;
  readonly id_next: Int32Array;
  readonly meta_bytes: Uint16Array;
  readonly provider: Uint16Array;
  readonly flags: Uint8Array;
  readonly keys: Uint8Array;
  readonly ids: Uint8Array;

  /** The columns lie in one buffer, the widest first. */
  constructor(rows: number) {
    const buffer = new ArrayBuffer(ROW_BYTES * rows);
    this.seq = new Float64Array(buffer, 0, rows);
    this.received_ms = new Float64Array(buffer, 8 * rows, rows);
    this.segment = new Uint32Array(buffer, 16 * rows, rows);
    this.offset = new Uint32Array(buffer, 20 * rows, rows);
    this.payload_bytes = new Uint32Array(buffer, 24 * rows, rows);
    this.next = new Int32Array(buffer, 28 * rows, rows);
    this.previous = new Int32Array(buffer, 32 * rows, rows);
    this.key_next = new Int32Array(buffer, 36 * rows, rows);
    this.id_next = new Int32Array(buffer, 40 * rows, rows);
    this.meta_bytes = new Uint16Array(buffer, 44 * rows, rows);
    this.provider = new Uint16Array(buffer, 46 * rows, rows);
    this.flags = new Uint8Array(buffer, 48 * rows, rows);
    this.keys = new Uint8Array(buffer, 49 * rows, KEY_BYTES * rows);
    this.ids = new Uint8Array(buffer, (49 + KEY_BYTES) * rows, ULID_BYTES * rows);
  }
}
