/**
 * Quarantines damaged records.
 *
 * Contract: a damaged record is copied to DIR/quarantine, never deleted, and reported. An object stays in the index as
 * damaged until it is stored again or removed, because its chunks may be whole and needed; any other record is removed
 * from the index. The index has checksums, so a record that does not check at its place is damaged: no other copy of it
 * is searched for.
 * Bound: one record is read at a time. Cancellation: the file system's deadline.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import type { SegmentLog } from '@ron/log';
import { hexOf } from './hex.ts';
import type { Place } from '../index/entry.ts';
import type { PlaceIndex } from '../index/place-index.ts';
import { isAt, onDisk } from '../index/record-places.ts';
import { RecordType } from './record-types.ts';
import type { DamagedRecord, Kind } from './volume.ts';

export interface QuarantineInit {
  volume: string;
  dir: string;
  log: SegmentLog;
  index: PlaceIndex;
  onDamage: ((record: DamagedRecord) => void) | undefined;
}

export class Quarantine {
  readonly #init: QuarantineInit;

  constructor(init: QuarantineInit) {
    this.#init = init;
  }

  /** Copies bytes of a damaged record, or bytes that are not a record. Returns whether the copy is durable. */
  async keepAside(name: string, segment: number, offset: number, bytes: number): Promise<boolean> {
    const { dir, log } = this.#init;
    try {
      const content = Buffer.alloc(Math.max(0, Math.min(bytes, log.files.bytesOf(segment) - offset)));
      const count = await log.files.read(segment, content, content.length, offset);
      const file = await log.files.fs.create(join(dir, 'quarantine', `${name}-${segment}-${offset}`));
      try {
        await file.write([content.subarray(0, count)], 0);
        await file.sync();
      } finally {
        await file.close();
      }
      await log.files.fs.syncDir(join(dir, 'quarantine'));
      return true;
    } catch (error) {
      // The same bytes may have been copied before. The copy is for operators: a disk that refuses it must not turn a
      // damaged record into a failed service.
      return (error as NodeJS.ErrnoException).code === 'EEXIST';
    }
  }

  /** The record at `place` does not check: it is copied, marked in the index and reported. */
  async add(kind: Kind, id: Uint8Array, place: Place): Promise<void> {
    const { volume, onDamage } = this.#init;
    await this.keepAside(hexOf(id), place.segment, place.offset, onDisk(place));
    for (const table of place.type === RecordType.object ? (['content', 'object'] as const) : [kind]) {
      await this.#mark(table, id, place);
    }
    const what = `${kind} at segment ${place.segment}, offset ${place.offset}`;
    onDamage?.({ volume, id_hex: hexOf(id), what });
  }

  /** Only the entry that leads to the damaged record: it may have been stored again meanwhile. */
  async #mark(table: Kind, id: Uint8Array, { segment, offset }: Place): Promise<void> {
    const { index } = this.#init;
    using hold = await index.hold(table, id);
    const { place } = hold;
    if (place === undefined || !isAt(place, segment, offset)) return;
    if (table === 'object') index.set(table, id, { ...place, isDamaged: true });
    else index.remove(table, id);
  }
}

export const damaged = (id: Uint8Array): RonError =>
  new RonError('integrity', `a stored record is damaged: ${hexOf(id)}`, { details: { id: hexOf(id) } });
