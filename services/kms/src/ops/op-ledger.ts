/**
 * Makes operations idempotent by id: an operation runs once, and repeated requests get the stored answer.
 *
 * Contract: for `RETENTION_MS` after an operation completed, the same id with the same request gets the same answer, across
 * restarts too; with another request it is refused (`conflict`). A tenant that has used its share loses its oldest ids
 * earlier, but none before `WINDOW_MS`. Concurrent requests with one id are coalesced. A failed operation leaves no record
 * and may be retried.
 * Bound: `entries_max` ids, of which one tenant holds at most as many as are still free; an answer of `ANSWER_BYTES_MAX`. At
 * a steady rate, ids are stored for `entries_max` divided by the rate.
 * Overflow: `storage_full`, or the error of `reserve`, before the operation runs. Cancellation: a caller that waits for a concurrent request leaves with
 * its signal's reason.
 */
import { Table, type Draft, type Reader, type RecordStore } from '@ron/custody/store';
import { orAborted, RonError, sched, type Parked } from '@ron/kernel';
import * as tables from '../vault/tables.ts';
import { opKey, requestHash, RETENTION_MS } from './op-id.ts';

/** An id is never removed earlier than this. */
export const WINDOW_MS = 24 * 3600 * 1000;
export const OP_ID_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
export const ANSWER_BYTES_MAX = 1024 * 1024;
/** Old ids that each new one removes. */
const EVICTED_MAX = 4;
/** The room that an id takes besides its answer, with a part of a page. */
const ID_BYTES = 1024;
const TIME_DIGITS = 15;
/** No tenant sorts before it. */
const CURSOR_START = '0';

export interface OpLedgerInit {
  readonly store: RecordStore;
  readonly entries_max: number;
}

/** A stored answer: any JSON. */
export type StoredAnswer = unknown;

/** A completed operation. */
export interface Done {
  readonly tenant: string;
  readonly request_hash: string;
  readonly time_ms: number;
  readonly answer: StoredAnswer;
}

interface Running {
  readonly tenant: string;
  readonly request_hash: string;
  readonly waiting: Parked<void>[];
}

export interface Op {
  readonly tenant: string;
  readonly op_id: string;
  readonly request: unknown;
  /** Reserves room for the answer before the work runs, or throws. The result is called with the bytes that were stored. */
  readonly reserve?: (() => (stored_bytes: number) => void) | undefined;
}

const OPS = new Table<Done>(tables.OPS);
const OP_TIMES = new Table<0>(tables.OP_TIMES);
const HELD = new Table<{ readonly ops: number }>(tables.TENANTS);

export class OpLedger {
  readonly #store: RecordStore;
  readonly #entries_max: number;
  readonly #running = new Map<string, Running>();
  /** Running operations of each tenant that has any. */
  readonly #runningOf = new Map<string, number>();
  /** Where the search for expired ids continues. */
  #cursor = CURSOR_START;

  constructor({ store, entries_max }: OpLedgerInit) {
    this.#store = store;
    this.#entries_max = entries_max;
  }

  /** The number of stored ids. */
  get size(): number {
    return OPS.count(this.#store);
  }

  /** Runs `work` unless this id has already completed. Returns its answer. */
  async once<A extends StoredAnswer>(op: Op, work: () => Promise<A>, signal: AbortSignal): Promise<A> {
    const id = opKey(op.tenant, op.op_id);
    const request_hash = requestHash(op.request);
    for (;;) {
      const running = this.#running.get(id);
      if (running === undefined) return await this.#first(id, op, request_hash, work, signal);
      if (running.request_hash !== request_hash) throw otherRequest(op);
      await waitFor(running, signal);
    }
  }

  async #first<A>(id: string, op: Op, request_hash: string, work: () => Promise<A>, signal: AbortSignal): Promise<A> {
    const { tenant } = op;
    const running: Running = { tenant, request_hash, waiting: [] };
    let release: ReturnType<NonNullable<Op['reserve']>> | undefined;
    let stored_bytes = 0;
    this.#running.set(id, running);
    this.#run(tenant, 1);
    try {
      await this.#store.prefetch(tables.OPS, [id], signal);
      const known = OPS.get(this.#store, id);
      if (known !== undefined && !isExpired(known)) {
        if (known.request_hash !== request_hash) throw otherRequest(op);
        return known.answer as A;
      }
      this.#requireRoom(tenant);
      release = op.reserve?.();
      const answer = await work();
      stored_bytes = await this.#keep(id, running, answer, signal);
      return answer;
    } finally {
      release?.(stored_bytes);
      this.#running.delete(id);
      this.#run(tenant, -1);
      for (const parked of running.waiting) parked.wake();
    }
  }

  /** Returns the bytes that the answer takes. */
  async #keep(
    id: string,
    { tenant, request_hash }: Running,
    answer: StoredAnswer,
    signal: AbortSignal,
  ): Promise<number> {
    const bytes = Buffer.byteLength(JSON.stringify(answer));
    if (bytes > ANSWER_BYTES_MAX) throw new RonError('payload_too_large', 'the answer is too large to store');
    const done: Done = { tenant, request_hash, time_ms: sched.wall_ms(), answer };
    await this.#store.commit(
      (draft) => {
        this.#evictExpired(draft);
        if (!this.#hasRoom(draft, tenant, 0, 0)) this.#evictOldest(draft, tenant);
        putOp(draft, id, done);
      },
      signal,
      bytes,
    );
    return bytes + ID_BYTES;
  }

  /** Counts this operation and all that are running. */
  #requireRoom(tenant: string): void {
    if (this.#hasRoom(this.#store, tenant, this.#runningOf.get(tenant)! - 1, this.#running.size - 1)) return;
    const [oldest] = this.#oldest(tenant, 1);
    if (oldest !== undefined && isBefore(oldest, WINDOW_MS)) return;
    throw new RonError('storage_full', 'the limit of stored op_ids is reached (kms.ops_max)');
  }

  /** `running`: operations of the tenant that will be stored; `running_all`: of all tenants. */
  #hasRoom(reader: Reader, tenant: string, running: number, running_all: number): boolean {
    const held = (HELD.get(reader, tables.heldOps(tenant))?.ops ?? 0) + running;
    return held < this.#entries_max - OPS.count(reader) - running_all;
  }

  #evictOldest(draft: Draft, tenant: string): void {
    const old = this.#oldest(tenant, EVICTED_MAX).filter((key) => isBefore(key, WINDOW_MS));
    for (const key of old) removeOp(draft, key);
  }

  /** Each call looks at a few ids of one tenant, and at those of the next tenant if none is expired. */
  #evictExpired(draft: Draft): void {
    const found = OP_TIMES.range(this.#store, this.#cursor, '\uffff', EVICTED_MAX).map(({ key }) => key);
    const expired = found.filter((key) => isBefore(key, RETENTION_MS));
    for (const key of expired) removeOp(draft, key);
    if (expired.length === found.length && found.length > 0) return;
    const [first] = found;
    this.#cursor = first === undefined ? CURSOR_START : `${partsOf(first).tenant}0`;
  }

  #oldest(tenant: string, limit: number): string[] {
    return OP_TIMES.range(this.#store, `${tenant}/`, `${tenant}0`, limit).map(({ key }) => key);
  }

  #run(tenant: string, count: number): void {
    const running = (this.#runningOf.get(tenant) ?? 0) + count;
    if (running === 0) this.#runningOf.delete(tenant);
    else this.#runningOf.set(tenant, running);
  }
}

/** Stores a completed operation, and removes its mark in `made`: the answer names the version. */
export function putOp(draft: Draft, id: string, done: Done): void {
  const before = OPS.get(draft, id);
  if (before !== undefined) removeOp(draft, timeKey(before, id));
  OPS.put(draft, id, done);
  OP_TIMES.put(draft, timeKey(done, id), 0);
  draft.remove(tables.MADE, id);
  hold(draft, done.tenant, 1);
}

function removeOp(draft: Draft, time_key: string): void {
  if (!OP_TIMES.has(draft, time_key)) return;
  const { tenant, id } = partsOf(time_key);
  OP_TIMES.remove(draft, time_key);
  OPS.remove(draft, id);
  hold(draft, tenant, -1);
}

function hold(draft: Draft, tenant: string, count: number): void {
  const ops = (HELD.get(draft, tables.heldOps(tenant))?.ops ?? 0) + count;
  if (ops === 0) HELD.remove(draft, tables.heldOps(tenant));
  else HELD.put(draft, tables.heldOps(tenant), { ops });
}

const timeKey = ({ tenant, time_ms }: Done, id: string): string =>
  `${tenant}/${String(time_ms).padStart(TIME_DIGITS, '0')}/${id}`;

function partsOf(time_key: string): { readonly tenant: string; readonly time_ms: number; readonly id: string } {
  const [tenant = '', time = '', id = ''] = time_key.split('/');
  return { tenant, time_ms: Number(time), id };
}

const isBefore = (time_key: string, age_ms: number): boolean => sched.wall_ms() - partsOf(time_key).time_ms > age_ms;

function isExpired({ time_ms }: Done): boolean {
  return sched.wall_ms() - time_ms > RETENTION_MS;
}

function otherRequest({ op_id }: Op): RonError {
  return new RonError('conflict', `op_id ${op_id} was used for another request`);
}

async function waitFor(running: Running, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const parked = sched.park<void>('op.running');
  running.waiting.push(parked);
  await orAborted(parked.promise, signal);
}
