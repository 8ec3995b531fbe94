/**
 * Makes operations idempotent by id: an operation runs once, and repeated requests get the stored answer.
 *
 * Contract: for `RETENTION_MS` after an operation completed, the same id with the same request gets the same answer, across
 * restarts too; with another request it is refused (`conflict`). Concurrent requests with one id are coalesced. A failed
 * operation leaves no record and may be retried. Records are numbered and authenticated, so an owner that stores `extent`
 * elsewhere detects missing or modified records and a rollback (`problem`).
 * Bound: `entries_max` ids, of which one tenant holds at most as many as are still free; an answer of `ANSWER_BYTES_MAX`.
 * Overflow: `storage_full` before the operation runs. Cancellation: a caller that waits for a concurrent request leaves with
 * its signal's reason.
 */
import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import { SegmentLog, type FileSystem, type Position } from '@ron/log';
import { orAborted, RonError, sched, type Parked } from '@ron/kernel';

export const RETENTION_MS = 30 * 24 * 3600 * 1000;
export const OP_ID_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
export const ANSWER_BYTES_MAX = 1024 * 1024;

export interface OpLedgerInit {
  readonly dir: string;
  readonly fs?: FileSystem | undefined;
  readonly entries_max: number;
  /** Authenticates the records; secret. */
  readonly key: Uint8Array;
  /** The `extent` stored elsewhere. Default: none. */
  readonly known?: OpExtent | undefined;
  readonly signal: AbortSignal;
}

/** The extent of the records, for storage elsewhere: `count` records with numbers from `first` to `last`. */
export interface OpExtent {
  readonly first: number;
  readonly last: number;
  readonly count: number;
  /** Segments before this one are no longer needed. */
  readonly segment: number;
}

/** The metadata of a stored answer. */
interface Meta {
  readonly tenant: string;
  readonly request_hash: string;
  /** Records are numbered from 1 in the order of writing. */
  readonly number: number;
  readonly time_ms: number;
}

interface Done extends Meta {
  readonly place: Position;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
}

interface Running {
  readonly tenant: string;
  readonly request_hash: string;
  readonly waiting: Parked<void>[];
}

/** A stored answer: any JSON. */
export type StoredAnswer = unknown;

const RECORD_TYPE = 1;
const MAC_BYTES = 32;
export const OP_KEY_BYTES = 32;
const SEGMENT_BYTES = 8 * 1024 * 1024;

interface Found {
  readonly done: Map<string, Done>;
  /** The numbers of all valid records, including expired ones. */
  readonly numbers: readonly number[];
  /** Records without a valid MAC. */
  readonly forged: number;
}

export class OpLedger implements AsyncDisposable {
  /** Why the ledger is unreliable; undefined if it is complete. */
  readonly problem: string | undefined;
  readonly #log: SegmentLog;
  readonly #entries_max: number;
  readonly #key: Uint8Array;
  /** Oldest first. */
  readonly #done: Map<string, Done>;
  readonly #running = new Map<string, Running>();
  readonly #held = new Map<string, number>();
  #number_last: number;

  private constructor(log: SegmentLog, init: OpLedgerInit, found: Found) {
    this.#log = log;
    this.#entries_max = init.entries_max;
    this.#key = init.key;
    this.#done = found.done;
    this.#number_last = Math.max(init.known?.last ?? 0, found.numbers.at(-1) ?? 0);
    this.problem = problemOf(found, init.known);
    for (const { tenant } of found.done.values()) this.#hold(tenant, 1);
  }

  static async open(init: OpLedgerInit): Promise<OpLedger> {
    const { dir, fs, key, signal } = init;
    const done = new Map<string, Done>();
    const numbers: number[] = [];
    let forged = 0;
    const log = await SegmentLog.open({
      dir,
      ...(fs === undefined ? {} : { fs }),
      segment_bytes: SEGMENT_BYTES,
      onRecord: ({ id: id_bytes, payload_bytes, meta_bytes }, place, body) => {
        const id = Buffer.from(id_bytes).toString('base64');
        const meta = openMeta(key, id, body.subarray(0, payload_bytes), body.subarray(payload_bytes));
        if (meta === undefined) {
          forged += 1;
          return;
        }
        numbers.push(meta.number);
        done.delete(id);
        if (!isExpired(meta)) done.set(id, { ...meta, place, payload_bytes, meta_bytes });
      },
      signal,
    });
    return new OpLedger(log, init, { done, numbers: numbers.toSorted((a, b) => a - b), forged });
  }

  /** The number of stored ids. */
  get size(): number {
    return this.#done.size;
  }

  /** The owner stores it elsewhere before it calls `prune`. */
  get extent(): OpExtent {
    this.#evictExpired();
    const [oldest] = this.#done.values();
    const { number, place } = oldest ?? { number: this.#number_last + 1, place: { segment: this.#log.active ?? 0 } };
    return { first: number, last: this.#number_last, count: this.#done.size, segment: place.segment };
  }

  /** Removes segments that are no longer needed. The extent must have been stored elsewhere before. */
  async prune({ segment: needed }: OpExtent): Promise<void> {
    for (const segment of this.#log.files.numbers()) {
      if (segment >= needed || segment === this.#log.active) break;
      // If the removal fails, the segment only occupies disk space.
      await this.#log.remove(segment).catch(() => undefined);
    }
  }

  /** Runs `work` unless this id has already completed. Returns its answer. */
  async once<A extends StoredAnswer>(
    op: { readonly tenant: string; readonly op_id: string; readonly request: unknown },
    work: () => Promise<A>,
    signal: AbortSignal,
  ): Promise<A> {
    const id = hash('sha256', `${op.tenant}\n${op.op_id}`, 'base64');
    const request_hash = requestHash(op.request);
    for (;;) {
      const known = this.#known(id) ?? this.#running.get(id);
      if (known === undefined) return await this.#first(id, op.tenant, request_hash, work, signal);
      if (known.request_hash !== request_hash) {
        throw new RonError('conflict', `op_id ${op.op_id} was used for another request`);
      }
      if ('place' in known) return (await this.#answer(known)) as A;
      await waitFor(known, signal);
    }
  }

  async close(): Promise<void> {
    await this.#log.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #first<A>(
    id: string,
    tenant: string,
    request_hash: string,
    work: () => Promise<A>,
    signal: AbortSignal,
  ): Promise<A> {
    this.#evictExpired();
    const held = this.#held.get(tenant) ?? 0;
    const free = this.#entries_max - this.#done.size - this.#running.size;
    if (held >= free) throw new RonError('storage_full', 'the limit of stored op_ids is reached (kms.ops_max)');
    const running: Running = { tenant, request_hash, waiting: [] };
    this.#running.set(id, running);
    this.#hold(tenant, 1);
    try {
      const answer = await work();
      await this.#store(id, running, answer, signal);
      return answer;
    } catch (error) {
      this.#hold(tenant, -1);
      throw error;
    } finally {
      this.#running.delete(id);
      for (const parked of running.waiting) parked.wake();
    }
  }

  async #store(
    id: string,
    { tenant, request_hash }: Running,
    answer: StoredAnswer,
    signal: AbortSignal,
  ): Promise<void> {
    const payload = Buffer.from(JSON.stringify(answer));
    if (payload.length > ANSWER_BYTES_MAX) throw new RonError('payload_too_large', 'the answer is too large to store');
    this.#number_last += 1;
    const fields: Meta = { tenant, request_hash, number: this.#number_last, time_ms: sched.wall_ms() };
    const meta = sealMeta(this.#key, id, payload, fields);
    const record = { type: RECORD_TYPE, id: Buffer.from(id, 'base64'), payload, meta };
    const [place] = await this.#log.append([record], signal);
    // The latest record replaces an expired one and moves to the end of the order.
    this.#done.delete(id);
    this.#done.set(id, { ...fields, place: place!, payload_bytes: payload.length, meta_bytes: meta.length });
  }

  async #answer({ place, payload_bytes, meta_bytes }: Done): Promise<StoredAnswer> {
    const record = await this.#log.read(place, payload_bytes, meta_bytes);
    if (record === undefined) throw new RonError('integrity', 'the stored answer of this op_id is damaged');
    return JSON.parse(Buffer.from(record.payload).toString()) as StoredAnswer;
  }

  #known(id: string): Done | undefined {
    const done = this.#done.get(id);
    return done === undefined || isExpired(done) ? undefined : done;
  }

  /** The oldest are first. */
  #evictExpired(): void {
    for (const [id, done] of this.#done) {
      if (!isExpired(done)) break;
      this.#done.delete(id);
      this.#hold(done.tenant, -1);
    }
  }

  #hold(tenant: string, count: number): void {
    const held = (this.#held.get(tenant) ?? 0) + count;
    if (held === 0) this.#held.delete(tenant);
    else this.#held.set(tenant, held);
  }
}

function isExpired({ time_ms }: Meta): boolean {
  return sched.wall_ms() - time_ms > RETENTION_MS;
}

function problemOf({ numbers, forged }: Found, known: OpExtent | undefined): string | undefined {
  if (forged > 0) return `${forged} of its records were modified or belong to another node`;
  if (known === undefined) return undefined;
  const { first, last, count } = known;
  const there = new Set(numbers.filter((number) => number >= first && number <= last)).size;
  return there < count ? `${count - there} of ${count} completed operations are missing` : undefined;
}

function macOf(key: Uint8Array, id: string, payload: Uint8Array, fields: string): Buffer {
  return createHmac('sha256', key).update(`ron-kms/ops/v1\n${id}\n${fields}\n`).update(payload).digest();
}

function sealMeta(key: Uint8Array, id: string, payload: Uint8Array, fields: Meta): Buffer {
  const text = JSON.stringify(fields);
  return Buffer.concat([macOf(key, id, payload, text), Buffer.from(text)]);
}

/** Undefined if it was not sealed with this key for this id and answer. */
function openMeta(key: Uint8Array, id: string, payload: Uint8Array, meta: Buffer): Meta | undefined {
  const text = meta.toString('utf8', MAC_BYTES);
  const mac = macOf(key, id, payload, text);
  const isOurs = meta.length > MAC_BYTES && timingSafeEqual(mac, meta.subarray(0, MAC_BYTES));
  return isOurs ? (JSON.parse(text) as Meta) : undefined;
}

async function waitFor(running: Running, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const parked = sched.park<void>('op.running');
  running.waiting.push(parked);
  await orAborted(parked.promise, signal);
}

/** The hash of a request, independent of the order of its members. */
export function requestHash(request: unknown): string {
  return hash('sha256', canonical(request), 'hex');
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  const sorted = members.toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${sorted.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(',')}}`;
}
