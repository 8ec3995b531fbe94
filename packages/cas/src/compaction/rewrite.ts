/**
 * Gives back the room of segments that hold few needed records: those move to the end of the log, then the segment goes.
 *
 * Contract: the index leads to a durable record at every moment. It follows a moved record when the copy is durable, and
 * the old segment goes when the index leads to no record in it and the last reader has left. Records that the index does
 * not lead to are dropped with their segment. Tombstones (removals of objects and notes, unpins, ended stripes) move, until no segment is left
 * that may hold a superseded record of their id: then they are dropped. A damaged record is kept aside before its segment
 * goes.
 * Bound: `BATCH_BYTES` and `BATCH_RECORDS` of records on their way; one entry for each segment; the event loop gets a turn
 * after `STEP_BYTES`, and the index is flushed when it is full. Cancellation: by the signal, between two steps. Records
 * that were moved until then stay moved.
 */
import { RonError, isRonError } from '@ron/kernel';
import { recordBytes, type Damage, type Position, type RecordHead, type RecordInput, type SegmentLog } from '@ron/log';
import type { Place, Table } from '../index/entry.ts';
import type { Hold, PlaceIndex } from '../index/place-index.ts';
import { entriesOf, isAt, markAt, onDisk, placeOfHead, type EntryKey } from '../index/record-places.ts';
import type { Quarantine } from '../volume/quarantine.ts';
import { isTombstone, RecordType } from '../volume/record-types.ts';
import { dropTombstones, Droppable } from './tombstones.ts';
import type { Kind, Reclaimed, ReclaimInit } from '../volume/volume.ts';

const BATCH_BYTES = 1024 * 1024;
const BATCH_RECORDS = 1024;
/** The cost of an index entry in bytes, for pacing. */
const ENTRY_COST_BYTES = 128;
/** Read from a segment in one go: about two milliseconds when its records are small. */
const STEP_BYTES = 128 * 1024;
/** The segment that is being written is sealed when it holds back this many tombstones. */
const SEAL_TOMBSTONES_MIN = 1024;

export interface RewriteInit extends ReclaimInit {
  log: SegmentLog;
  index: PlaceIndex;
  quarantine: Quarantine;
  flush(): Promise<void>;
  /** Reads a record and, when it is damaged, quarantines it. */
  check(kind: Kind, id: Uint8Array): Promise<unknown>;
}

export async function rewriteSegments(init: RewriteInit): Promise<Reclaimed> {
  const { log } = init;
  const use = await usageOf(init);
  await sealIfWasteful(init, use);
  const reclaimed = { segments: 0, moved_bytes: 0, freed_bytes: 0 };
  for (const segment of wasteful(init, use)) {
    const freed_bytes = log.files.bytesOf(segment);
    const moved_bytes = await new Rewrite(init, segment).run();
    reclaimed.segments += 1;
    reclaimed.moved_bytes += moved_bytes;
    reclaimed.freed_bytes += freed_bytes - moved_bytes;
    init.onProgress?.({ ...reclaimed });
  }
  if (reclaimed.segments > 0) await dropTombstones(init);
  return reclaimed;
}

/** An estimate: the decision about each record is made when it is reached. */
interface Usage {
  /** Needed bytes by segment. */
  readonly live: Map<number, number>;
  /** Tombstones by the segment that they lie in, which can go together with it. */
  readonly tombstones: Map<number, number>;
}

const increase = (counts: Map<number, number>, segment: number, by: number): void =>
  void counts.set(segment, (counts.get(segment) ?? 0) + by);

async function usageOf(init: RewriteInit): Promise<Usage> {
  const use: Usage = { live: new Map(), tombstones: new Map() };
  const droppable = new Droppable(init);
  await walk(init, (table, id, place) => {
    if (place.isDamaged === true || (table === 'content' && !init.isNeeded(id))) return;
    if (isTombstone(place.type) && droppable.canGo(place)) return init.index.removeListed(table, id, place);
    if (isTombstone(place.type) && droppable.canGo(place, place.segment)) increase(use.tombstones, place.segment, 1);
    else increase(use.live, place.segment, onDisk(place));
  });
  return use;
}

type Visit = (table: Table, id: Buffer, place: Place) => void;

/** Visits every entry of the index, a page at a time. */
async function walk(init: RewriteInit, visit: Visit): Promise<void> {
  await init.flush();
  for (const table of ['content', 'object', 'pin', 'stripe', 'note'] as const) {
    for (let after: Uint8Array | undefined; ;) {
      const { entries, last } = await init.index.page(table, after);
      for (const [id, place] of entries) visit(table, id, place);
      if (last === undefined) break;
      after = last;
      await init.pace(entries.length * ENTRY_COST_BYTES);
    }
  }
}

const isWasteful = (init: RewriteInit, { live }: Usage, segment: number): boolean =>
  (live.get(segment) ?? 0) < init.live_ratio * init.log.files.bytesOf(segment);

/** The segment that is being written is taken too when it wastes enough, or holds back many tombstones. */
async function sealIfWasteful(init: RewriteInit, use: Usage): Promise<void> {
  const { log } = init;
  const { active } = log;
  if (active === undefined || !isWasteful(init, use, active)) return;
  const isWorthIt =
    log.files.bytesOf(active) - (use.live.get(active) ?? 0) >= init.seal_bytes_min ||
    (use.tombstones.get(active) ?? 0) >= SEAL_TOMBSTONES_MIN;
  if (!isWorthIt) return;
  log.rotate();
  // When there is no room for a new segment this one stays as it is, and others can still give back theirs.
  await log.sync(init.signal).catch(() => init.signal.throwIfAborted());
}

/** Those with the least to move come first: they give back the most, even if the disk is full. */
function wasteful(init: RewriteInit, use: Usage): number[] {
  const { files } = init.log;
  return files
    .numbers()
    .slice(0, -1) // The last one is being written, or about to be.
    .filter((segment) => files.bytesOf(segment) === 0 || isWasteful(init, use, segment))
    .toSorted((a, b) => (use.live.get(a) ?? 0) - (use.live.get(b) ?? 0));
}

interface Moving {
  readonly record: RecordInput;
  readonly bytes: number;
  /** Its entries in the index, until the copy is durable. */
  readonly holds: DisposableStack;
}

/** One segment. */
class Rewrite {
  readonly #init: RewriteInit;
  readonly #segment: number;
  readonly #droppable: Droppable;
  readonly #damage: Damage[] = [];
  #batch: Moving[] = [];
  #batch_bytes = 0;
  #moved_bytes = 0;
  /** Read since the event loop had a turn. */
  #step_bytes = 0;

  constructor(init: RewriteInit, segment: number) {
    this.#init = init;
    this.#segment = segment;
    this.#droppable = new Droppable(init);
  }

  /** Bytes that were moved. */
  async run(): Promise<number> {
    try {
      await this.#moveAll();
      await this.#settleDamage();
    } finally {
      for (const { holds } of this.#batch) holds.dispose();
    }
    await this.#flush();
    await this.#init.log.remove(this.#segment);
    return this.#moved_bytes;
  }

  async #moveAll(): Promise<void> {
    const { log, signal } = this.#init;
    await log.scanSegment(
      this.#segment,
      (head, position, body) => this.#visit(head, position, body),
      (damage) => this.#damage.push(damage),
      signal,
    );
    await this.#move();
  }

  /** A segment may hold millions of small records: the event loop gets a turn, and the index is kept from overflowing. */
  #visit(head: RecordHead, position: Position, body: Buffer): void | Promise<void> {
    this.#step_bytes += ENTRY_COST_BYTES + body.length;
    const busy = this.#decide(head, placeOfHead(head, position), body);
    return this.#step_bytes < STEP_BYTES ? busy : this.#endStep(busy);
  }

  async #endStep(busy: void | Promise<void>): Promise<void> {
    await busy;
    const bytes = this.#step_bytes;
    this.#step_bytes = 0;
    await this.#init.pace(bytes);
    // When that fails the end of the segment tries again, and handles the failure.
    if (this.#init.index.isFull) await this.#init.flush().catch(() => this.#init.signal.throwIfAborted());
  }

  #decide(head: RecordHead, here: Place, body: Buffer): void | Promise<void> {
    const keys = entriesOf(head, head.id, body);
    // A type that is not known here is from a later version: it is kept.
    if (keys.length === 0) return this.#take(head, body, new DisposableStack());
    // Nothing leads to a record whose id has no entry.
    if (keys.every(([table, id]) => this.#init.index.tag(table, id) === undefined)) return undefined;
    return this.#decideHeld(head, here, body, keys);
  }

  async #decideHeld(head: RecordHead, here: Place, body: Buffer, keys: readonly EntryKey[]): Promise<void> {
    using holds = new DisposableStack();
    const led: (readonly [key: EntryKey, hold: Hold])[] = [];
    for (const key of keys) led.push([key, holds.use(await this.#init.index.hold(...key))]);
    const isLed = (hold: Hold): boolean => isAt(hold.place, here.segment, here.offset);
    let isKept = false;
    for (const [key, hold] of led) {
      if (key[0] !== 'content' && isLed(hold) && !(await this.#drop(key, hold, isLed))) isKept = true;
    }
    if (isKept) return await this.#take(head, body, holds.move());
    const content = led.find(([[table]]) => table === 'content');
    // The question whether it is needed, and removing it, are one step.
    if (content === undefined || !isLed(content[1]) || this.#forget(head.id)) return;
    // As a chunk: an object's record would bring the object back, were the index rebuilt without its tombstone.
    if (head.type !== RecordType.object) return await this.#take(head, body, holds.move());
    const chunk = { ...head, type: RecordType.chunk, meta_bytes: 0 };
    await this.#take(chunk, body.subarray(0, head.payload_bytes), holds.move());
  }

  /** Drops a tombstone that hides nothing any more. */
  async #drop([table, id]: EntryKey, hold: Hold, isLed: (hold: Hold) => boolean): Promise<boolean> {
    if (!isTombstone(hold.place!.type)) return false;
    const place = await this.#init.index.getWithDead(table, id);
    if (!isLed(hold)) return true;
    // The range must be that of the entry which is held.
    const { segment, offset } = hold.place!;
    if (!isAt(place, segment, offset) || !this.#droppable.canGo(place!, this.#segment)) return false;
    this.#init.index.remove(table, id);
    return true;
  }

  #take(head: RecordHead, body: Buffer, holds: DisposableStack): void | Promise<void> {
    const { type, id, seq, time_s, payload_bytes } = head;
    const copy = Buffer.from(body);
    const record = { type, id, seq, time_s, payload: copy.subarray(0, payload_bytes) };
    const meta = copy.subarray(payload_bytes);
    return this.#add(meta.length === 0 ? record : { ...record, meta }, holds);
  }

  /** Forgets a content that is not needed; the question and the removal are one step. */
  #forget(id: Uint8Array): boolean {
    if (this.#init.isNeeded(id)) return false;
    this.#init.index.remove('content', id);
    return true;
  }

  #add(record: RecordInput, holds: DisposableStack): void | Promise<void> {
    const bytes = recordBytes(record.payload.length, record.meta?.length ?? 0);
    this.#batch.push({ record, bytes, holds });
    this.#batch_bytes += bytes;
    return this.#batch_bytes >= BATCH_BYTES || this.#batch.length >= BATCH_RECORDS ? this.#move() : undefined;
  }

  /** Appends the gathered records; the log enters them into the index once they are durable. */
  async #move(): Promise<void> {
    const { log, signal } = this.#init;
    if (this.#batch.length === 0) return;
    await this.#init.pace(this.#batch_bytes);
    await log.append(
      this.#batch.map(({ record }) => record),
      signal,
    );
    this.#moved_bytes += this.#batch_bytes;
    for (const { holds } of this.#batch) holds.dispose();
    this.#batch = [];
    this.#batch_bytes = 0;
  }

  /**
   * The index on disk must lead to the copies, and must not reach into the segment, before that goes. Otherwise a failure
   * is left to the next flush: a full disk must not keep a segment that holds nothing needed.
   */
  async #flush(): Promise<void> {
    try {
      await this.#init.flush();
    } catch (error) {
      if (this.#moved_bytes > 0 || this.#init.index.applied?.position.segment === this.#segment) throw error;
    }
  }

  /** Bytes that are not a record are kept aside, and the records that the index knows there are checked. */
  async #settleDamage(): Promise<void> {
    const { quarantine } = this.#init;
    for (const { offset, bytes } of this.#damage) {
      if (await quarantine.keepAside('gap', this.#segment, offset, bytes)) continue;
      throw new RonError('not_ready', `damaged bytes of segment ${this.#segment} could not be kept aside`);
    }
    if (this.#damage.length === 0) return;
    const lost: { table: Table; id: Buffer; place: Place }[] = [];
    await walk(this.#init, (table, id, place) => {
      if (place.segment === this.#segment && place.isDamaged !== true) lost.push({ table, id: Buffer.from(id), place });
    });
    for (const { table, id, place } of lost) await this.#settle(table, id, place);
    await this.#move();
  }

  async #settle(table: Table, id: Buffer, place: Place): Promise<void> {
    using holds = new DisposableStack();
    const hold = holds.use(await this.#init.index.hold(table, id));
    if (!isAt(hold.place, place.segment, place.offset)) return;
    const mark = markAt(table, id, place);
    if (mark !== undefined) return await this.#add(mark, holds.move());
    if (table === 'pin' || (table === 'content' && this.#forget(id))) return;
    await this.#init.check(table, id).catch((error: unknown) => {
      if (!isRonError(error, 'integrity')) throw error;
    });
  }
}
