/**
 * Gives back the room of segments that hold little that is needed: what is needed moves to the end of the log, then the
 * segment goes.
 *
 * Promise: the index leads to a record that is durable, at every moment: the log enters a moved record once the copy is
 * durable, and the old segment goes when the index knows no record in it and the last reader has left. Marks of removal and pins
 * always move. What the index does not lead to goes only when it leads to something as good: see stray-records.ts. A
 * damaged record is kept aside before its segment goes.
 * Bound: `BATCH_BYTES` of records are on their way; one entry for each segment; everybody else gets a turn after `STEP_BYTES`,
 * and the index is flushed when it is full. Cancellation: by the signal, between two steps. What was moved until then stays
 * moved, and the rest is done another time.
 */
import { RonError, isRonError } from '@ron/kernel';
import { recordBytes, type Damage, type Position, type RecordHead, type RecordInput, type SegmentLog } from '@ron/log';
import type { Place, PlaceIndex, Table } from './place-index.ts';
import { isAt, markAt, onDisk, placeOfHead, tablesOf } from './record-places.ts';
import type { Recovery } from './recovery.ts';
import { claim, isAstray } from './stray-records.ts';
import type { Kind, Reclaimed, ReclaimInit } from './volume.ts';

const BATCH_BYTES = 1024 * 1024;
/** Entries of the index that are looked at in one go: about a millisecond. */
const WALK_ENTRIES = 512;
/** What looking at an entry counts as, in bytes, when the work is paced. */
const ENTRY_COST_BYTES = 128;
/** What is read of a segment in one go: about two milliseconds when its records are small. */
const STEP_BYTES = 128 * 1024;

export interface RewriteInit extends ReclaimInit {
  log: SegmentLog;
  index: PlaceIndex;
  recovery: Recovery;
  flush(): Promise<void>;
  /** Reads a record and, when it is damaged, sees to it. */
  check(kind: Kind, id: Uint8Array): Promise<unknown>;
}

export async function rewriteSegments(init: RewriteInit): Promise<Reclaimed> {
  const { log } = init;
  const live = await liveBytes(init);
  await sealIfWasteful(init, live);
  const reclaimed = { segments: 0, moved_bytes: 0, freed_bytes: 0 };
  for (const segment of wasteful(init, live)) {
    const freed_bytes = log.files.bytesOf(segment);
    const moved_bytes = await new Rewrite(init, segment).run();
    reclaimed.segments += 1;
    reclaimed.moved_bytes += moved_bytes;
    reclaimed.freed_bytes += freed_bytes - moved_bytes;
    init.onProgress?.({ ...reclaimed });
  }
  return reclaimed;
}

/** How many bytes of each segment are needed. An estimate: the decision about each record is made when it is reached. */
async function liveBytes(init: RewriteInit): Promise<Map<number, number>> {
  const live = new Map<number, number>();
  await walk(init, (table, id, place) => {
    const isNeeded = table !== 'content' || init.isNeeded(id);
    if (isNeeded && place.isDamaged !== true) live.set(place.segment, (live.get(place.segment) ?? 0) + onDisk(place));
  });
  return live;
}

/** Visits every entry of the index, a few at a time. */
async function walk(init: RewriteInit, visit: (table: Table, id: Buffer, place: Place) => void): Promise<void> {
  await init.flush();
  for (const table of ['content', 'object', 'pin', 'stripe', 'note'] as const) {
    let after: Buffer | undefined;
    do {
      after = visitSome(init.index, table, after, visit);
      await init.pace(WALK_ENTRIES * ENTRY_COST_BYTES);
    } while (after !== undefined);
  }
}

/** Where it stopped, or undefined at the end of the table. */
function visitSome(
  index: PlaceIndex,
  table: Table,
  after: Buffer | undefined,
  visit: (table: Table, id: Buffer, place: Place) => void,
): Buffer | undefined {
  let count = 0;
  for (const [id, place] of index.entries(table, after)) {
    visit(table, id, place);
    if (++count === WALK_ENTRIES) return Buffer.from(id);
  }
  return undefined;
}

const isWasteful = (init: RewriteInit, live: Map<number, number>, segment: number): boolean =>
  (live.get(segment) ?? 0) < init.live_ratio * init.log.files.bytesOf(segment);

/** The segment that is being written is taken as well when it holds enough that nobody needs. */
async function sealIfWasteful(init: RewriteInit, live: Map<number, number>): Promise<void> {
  const { log } = init;
  const { active } = log;
  if (active === undefined || !isWasteful(init, live, active)) return;
  if (log.files.bytesOf(active) - (live.get(active) ?? 0) < init.seal_bytes_min) return;
  log.rotate();
  // When there is no room for a new segment this one stays as it is, and others can still give back theirs.
  await log.sync(init.signal).catch(() => init.signal.throwIfAborted());
}

/** Those with the least to move come first: they give back the most, also when the disk is full. */
function wasteful(init: RewriteInit, live: Map<number, number>): number[] {
  const { files } = init.log;
  return files
    .numbers()
    .slice(0, -1) // The last one is being written, or about to be.
    .filter((segment) => files.bytesOf(segment) === 0 || isWasteful(init, live, segment))
    .toSorted((a, b) => (live.get(a) ?? 0) - (live.get(b) ?? 0));
}

interface Moving {
  readonly record: RecordInput;
  readonly bytes: number;
}

/** One segment. */
class Rewrite {
  readonly #init: RewriteInit;
  readonly #segment: number;
  readonly #damage: Damage[] = [];
  #batch: Moving[] = [];
  #batch_bytes = 0;
  #moved_bytes = 0;
  /** What was read since others had a turn. */
  #step_bytes = 0;

  constructor(init: RewriteInit, segment: number) {
    this.#init = init;
    this.#segment = segment;
  }

  /** Bytes that were moved. */
  async run(): Promise<number> {
    const { log, recovery } = this.#init;
    let relocated_total: number;
    do {
      // When the index was led to another copy meanwhile, that copy may lie here, behind us.
      relocated_total = recovery.relocated_total;
      await this.#moveAll();
      await this.#settleDamage();
      await this.#flush();
    } while (relocated_total !== recovery.relocated_total);
    await log.remove(this.#segment);
    return this.#moved_bytes;
  }

  async #moveAll(): Promise<void> {
    const { log, signal } = this.#init;
    this.#damage.length = 0;
    await log.scanSegment(
      this.#segment,
      (head, position, body) => this.#visit(head, position, body),
      (damage) => this.#damage.push(damage),
      signal,
    );
    await this.#move();
  }

  /** A segment may hold millions of small records: everybody else gets a turn, and the index is not left to overflow. */
  #visit(head: RecordHead, position: Position, body: Buffer): void | Promise<void> {
    this.#step_bytes += ENTRY_COST_BYTES + body.length;
    const busy = this.#decide(head, position, body);
    return this.#step_bytes < STEP_BYTES ? busy : this.#endStep(busy);
  }

  async #endStep(busy: void | Promise<void>): Promise<void> {
    await busy;
    const bytes = this.#step_bytes;
    this.#step_bytes = 0;
    await this.#init.pace(bytes);
    // When that fails the end of the segment tries again, and knows what follows from it.
    if (this.#init.index.isFull) await this.#init.flush().catch(() => this.#init.signal.throwIfAborted());
  }

  /** Decides about a record, in one step with forgetting it. */
  #decide(head: RecordHead, position: Position, body: Buffer): void | Promise<void> {
    const here = placeOfHead(head, position);
    const all = tablesOf(head.type);
    // A type that is not known here is from a later version: it is not ours to drop.
    if (all.length === 0 || all.some((table) => table !== 'content' && this.#leadsTo(table, head, here))) {
      return this.#take(head, body);
    }
    const astray = all.filter((table) => isAstray(this.#init, table, head, here));
    return astray.length === 0 ? this.#visitContent(head, here, body) : this.#visitStray(astray, head, here, body);
  }

  #leadsTo(table: Table, { id }: RecordHead, { segment, offset }: Place): boolean {
    return isAt(this.#init.index.get(table, id), segment, offset);
  }

  #visitContent(head: RecordHead, here: Place, body: Buffer): void | Promise<void> {
    if (!this.#leadsTo('content', head, here) || this.#forget(head.id)) return undefined;
    return this.#take(head, body);
  }

  async #visitStray(tables: readonly Table[], head: RecordHead, here: Place, body: Buffer): Promise<void> {
    for (const table of tables) {
      if (await claim(this.#init, table, head, here)) return await this.#take(head, body);
    }
    await this.#visitContent(head, here, body);
  }

  #take(head: RecordHead, body: Buffer): void | Promise<void> {
    const { type, id, seq, time_s, payload_bytes } = head;
    const copy = Buffer.from(body);
    const record = { type, id, seq, time_s, payload: copy.subarray(0, payload_bytes) };
    const meta = copy.subarray(payload_bytes);
    return this.#add(meta.length === 0 ? record : { ...record, meta }, body.length);
  }

  /** Forgets a content that nobody needs; asking and forgetting are one step. */
  #forget(id: Uint8Array): boolean {
    if (this.#init.isNeeded(id)) return false;
    this.#init.index.remove('content', id);
    return true;
  }

  #add(record: RecordInput, bytes: number): void | Promise<void> {
    this.#batch.push({ record, bytes });
    this.#batch_bytes += bytes;
    return this.#batch_bytes >= BATCH_BYTES ? this.#move() : undefined;
  }

  /** Appends the gathered records; the log enters them into the index once they are durable. */
  async #move(): Promise<void> {
    const { log, signal } = this.#init;
    const records = this.#batch.map((moving) => moving.record);
    const bytes = this.#batch_bytes;
    this.#batch = [];
    this.#batch_bytes = 0;
    if (records.length === 0) return;
    await this.#init.pace(bytes);
    await log.append(records, signal);
    for (const { payload, meta } of records) this.#moved_bytes += recordBytes(payload.length, meta?.length ?? 0);
  }

  /** The index on disk must lead to the copies before the records that it led to go. Nothing moved: nothing to know. */
  async #flush(): Promise<void> {
    try {
      await this.#init.flush();
    } catch (error) {
      if (this.#moved_bytes > 0) throw error;
    }
  }

  /** Bytes that are no record are kept aside, and the records that the index knows there are seen to. */
  async #settleDamage(): Promise<void> {
    const { recovery } = this.#init;
    for (const { offset, bytes } of this.#damage) {
      if (await recovery.keepAside('gap', this.#segment, offset, bytes)) continue;
      throw new RonError('not_ready', `damaged bytes of segment ${this.#segment} could not be kept aside`);
    }
    if (this.#damage.length === 0) return;
    const lost: { table: Table; id: Buffer; place: Place }[] = [];
    await walk(this.#init, (table, id, place) => {
      if (place.segment === this.#segment && place.isDamaged !== true) lost.push({ table, id: Buffer.from(id), place });
    });
    let notReady: RonError | undefined;
    for (const { table, id, place } of lost) {
      // All are asked for before it gives up: one search of the log looks for all of them.
      await this.#settle(table, id, place).catch((error: unknown) => {
        if (!isRonError(error, 'not_ready')) throw error;
        notReady ??= error;
      });
    }
    await this.#move();
    if (notReady !== undefined) throw notReady;
  }

  async #settle(table: Table, id: Buffer, place: Place): Promise<void> {
    if (!isAt(this.#init.index.get(table, id), place.segment, place.offset)) return;
    const mark = markAt(table, id, place);
    if (mark !== undefined) return await this.#add(mark, 0);
    if (table === 'pin' || (table === 'content' && this.#forget(id))) return;
    await this.#init.check(table, id).catch((error: unknown) => {
      if (!isRonError(error, 'integrity')) throw error;
    });
  }
}
