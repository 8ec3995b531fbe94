/**
 * Operations that were asked for with an id: done once, and answered the same way again.
 *
 * Promise: for `KEPT_MS` after an operation was answered, the same id with the same request gets the same answer, over
 * restarts too; with another request it is refused (`conflict`). Two at the same time are one. An operation that failed
 * leaves nothing: it may be tried again.
 * Bound: `entries_max` ids, of which one tenant holds at most as many as are still free; an answer of `ANSWER_BYTES_MAX`.
 * Overflow: `storage_full` before anything is done. Cancellation: whoever waits for another's operation leaves by its signal.
 */
import { hash } from 'node:crypto';
import { SegmentLog, type FileSystem, type Position, type RecordHead } from '@ron/log';
import { RonError, sched, type Parked } from '@ron/kernel';

export const KEPT_MS = 30 * 24 * 3600 * 1000;
export const OP_ID_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
export const ANSWER_BYTES_MAX = 1024 * 1024;

export interface OpLedgerInit {
  readonly dir: string;
  readonly fs?: FileSystem | undefined;
  readonly entries_max: number;
  readonly signal: AbortSignal;
}

interface Done {
  readonly tenant: string;
  readonly request_hash: string;
  readonly place: Position;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly time_s: number;
}

interface Running {
  readonly tenant: string;
  readonly request_hash: string;
  readonly waiting: Parked<void>[];
}

/** One answer that is kept: any JSON. */
export type Kept = unknown;

const RECORD_TYPE = 1;
const SEGMENT_BYTES = 8 * 1024 * 1024;

export class OpLedger implements AsyncDisposable {
  readonly #log: SegmentLog;
  readonly #entries_max: number;
  /** In order of time, the oldest first. */
  readonly #done: Map<string, Done>;
  readonly #running = new Map<string, Running>();
  readonly #held = new Map<string, number>();

  private constructor(log: SegmentLog, entries_max: number, done: Map<string, Done>) {
    this.#log = log;
    this.#entries_max = entries_max;
    this.#done = done;
    for (const { tenant } of done.values()) this.#hold(tenant, 1);
  }

  static async open(init: OpLedgerInit): Promise<OpLedger> {
    const { dir, fs, entries_max, signal } = init;
    const log = await SegmentLog.open({
      dir,
      ...(fs === undefined ? {} : { fs }),
      segment_bytes: SEGMENT_BYTES,
      signal,
    });
    const done = new Map<string, Done>();
    const onRecord = (head: RecordHead, place: Position, body: Buffer): void => {
      const { payload_bytes, meta_bytes, time_s } = head;
      const { tenant, request_hash } = JSON.parse(body.toString('utf8', payload_bytes)) as Done;
      const entry: Done = { tenant, request_hash, place, payload_bytes, meta_bytes, time_s };
      if (!isExpired(entry)) done.set(Buffer.from(head.id).toString('base64'), entry);
    };
    // An answer that is damaged is not given again: then the operation is done anew.
    for (const segment of log.files.numbers()) await log.scanSegment(segment, onRecord, () => undefined, signal);
    return new OpLedger(log, entries_max, done);
  }

  /** Ids that are kept. */
  get size(): number {
    return this.#done.size;
  }

  /** Does `work` unless it was done under this id, and gives its answer. */
  async once<A extends Kept>(
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
    this.#forgetExpired();
    const held = this.#held.get(tenant) ?? 0;
    const free = this.#entries_max - this.#done.size - this.#running.size;
    if (held >= free) throw new RonError('storage_full', 'no room for another op_id: as many are kept as allowed');
    const running: Running = { tenant, request_hash, waiting: [] };
    this.#running.set(id, running);
    this.#hold(tenant, 1);
    try {
      const answer = await work();
      await this.#keep(id, running, answer, signal);
      return answer;
    } catch (error) {
      this.#hold(tenant, -1);
      throw error;
    } finally {
      this.#running.delete(id);
      for (const parked of running.waiting) parked.wake();
    }
  }

  async #keep(id: string, { tenant, request_hash }: Running, answer: Kept, signal: AbortSignal): Promise<void> {
    const payload = Buffer.from(JSON.stringify(answer));
    if (payload.length > ANSWER_BYTES_MAX) throw new RonError('payload_too_large', 'the answer is too large to keep');
    const meta = Buffer.from(JSON.stringify({ tenant, request_hash }));
    const record = { type: RECORD_TYPE, id: Buffer.from(id, 'base64'), payload, meta };
    const [place] = await this.#log.append([record], signal);
    const { time_s } = place!;
    const payload_bytes = payload.length;
    this.#done.set(id, { tenant, request_hash, place: place!, payload_bytes, meta_bytes: meta.length, time_s });
  }

  async #answer({ place, payload_bytes, meta_bytes }: Done): Promise<Kept> {
    const record = await this.#log.read(place, payload_bytes, meta_bytes);
    if (record === undefined) throw new RonError('integrity', 'the kept answer of this op_id is damaged');
    return JSON.parse(Buffer.from(record.payload).toString()) as Kept;
  }

  #known(id: string): Done | undefined {
    const done = this.#done.get(id);
    return done === undefined || isExpired(done) ? undefined : done;
  }

  /** The oldest stand first. A segment that only held expired ones goes with the last of them. */
  #forgetExpired(): void {
    for (const [id, done] of this.#done) {
      if (!isExpired(done)) break;
      this.#done.delete(id);
      this.#hold(done.tenant, -1);
    }
    const [oldest] = this.#done.values();
    const first = oldest?.place.segment ?? this.#log.active;
    for (const segment of this.#log.files.numbers()) {
      if (first === undefined || segment >= first || segment === this.#log.active) break;
      // Losing the race with another removal, or the disk, costs only room.
      void this.#log.remove(segment).catch(() => undefined);
    }
  }

  #hold(tenant: string, count: number): void {
    const held = (this.#held.get(tenant) ?? 0) + count;
    if (held === 0) this.#held.delete(tenant);
    else this.#held.set(tenant, held);
  }
}

function isExpired({ time_s }: Done): boolean {
  return sched.wall_ms() - time_s * 1000 > KEPT_MS;
}

async function waitFor(running: Running, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const parked = sched.park<void>('op.running');
  const onAbort = (): void => parked.fail(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  running.waiting.push(parked);
  try {
    await parked.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Of a request, however its members are ordered. */
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
