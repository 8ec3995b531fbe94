/**
 * Opens the log of a mailbox: lock, replay, ledger check, acceptance, damaged messages.
 *
 * Contract: as `MailboxLog.open`. After a failure nothing stays open or locked. A disk that cannot be written does not prevent
 * the start: messages can still be read, and the next start repeats the steps that write.
 * Bound: as in replay.ts. Cancellation: by the signal.
 */
import { join } from 'node:path';
import { RonError, sched } from '@ron/kernel';
import { realFileSystem, recordBytes, Reserve, SegmentLog, type FileSystem } from '@ron/log';
import { MAILBOX_LIMITS } from '@ron/proto';
import { acceptedEntry, takeAcceptance, type Acceptance } from './ledger/accept.ts';
import { encodeAccepted } from './codec/entry-codec.ts';
import { markId } from './codec/message-codec.ts';
import type { DiskEvent } from './disk-condition.ts';
import { DurableState } from './durable-state.ts';
import { EndMark, readEndMark } from './end-mark.ts';
import type { LedgerProblem } from './ledger/problems.ts';
import { RECORD, type AcceptedEntry, type RecordTarget } from './records.ts';
import { Replay } from './ledger/replay.ts';

export interface ReplayProgress {
  readonly bytes: number;
  readonly bytes_total: number;
}

/** The service turns them into events and metrics. */
export type StoreEvent =
  | { readonly kind: 'damage'; readonly problem: string }
  | { readonly kind: 'message damaged'; readonly topic: string; readonly id: Uint8Array; readonly seq: number }
  | { readonly kind: 'ledger broken'; readonly problem: LedgerProblem }
  | { readonly kind: 'ledger accepted'; readonly problem: LedgerProblem }
  | DiskEvent;

export interface MailboxLogInit {
  /** The data directory. */
  dir: string;
  /** Default: the real one. */
  fs?: FileSystem;
  /** Smaller on a small disk, so that a segment can be compacted within the reserve. */
  segment_bytes: number;
  target: RecordTarget;
  /** Called while the log is replayed. */
  onProgress?: (progress: ReplayProgress) => void;
  onEvent?: (event: StoreEvent) => void;
  signal: AbortSignal;
}

export interface OpenedLog {
  readonly log: SegmentLog;
  readonly state: DurableState;
  readonly reserve: Reserve;
  readonly lock: Disposable | undefined;
  readonly end: EndMark;
  readonly problem: LedgerProblem | undefined;
  /** When the newest record was appended; 0 if there was none. */
  readonly newest_ms: number;
  /** Why nothing may be written until the next start; undefined if the directory is writable. */
  readonly read_only: RonError | undefined;
}

const MIB = 1024 * 1024;
/** A group of messages of the largest size fits. */
const SEGMENT_BYTES_SMALL = 4 * MIB;
const QUEUE_BYTES_MAX = 64 * MIB;
/** One batch is encoded in one turn of the event loop. */
const BATCH_RECORDS_MAX = 512;
const PROGRESS_RECORDS = 1024;
const BATCH = 128;
const SQLITE_READONLY = 8;
const SQLITE_CANTOPEN = 14;
const READ_ONLY = 'the disk was read-only at the start: remount it, then restart mailbox';
/** Ranges in a log line. */
const EXCUSED_LOGGED = 8;
const POWER_FAILURE = 'a power failure lost records that were not synced';

export async function openLog(init: MailboxLogInit): Promise<OpenedLog> {
  const { fs = realFileSystem, dir } = init;
  await fs.makeDir(dir);
  const lock = lockOf(fs, dir);
  let log: SegmentLog | undefined;
  try {
    const { reserve_bytes_max, reserve_bytes_min } = MAILBOX_LIMITS;
    const reserve = new Reserve(async () => await fs.room?.(dir), reserve_bytes_max, reserve_bytes_min);
    await reserve.measure();
    const end_mark = await readEndMark(fs, dir);
    if (end_mark === undefined)
      init.onEvent?.({ kind: 'damage', problem: 'the file `end` is damaged and was ignored' });
    const replay = new Replay(init.target);
    const state = new DurableState(replay.topics, replay.key_segments, init.target);
    log = await replayLog(init, fs, segmentBytes(init, reserve), end_mark ?? 0, replay, state);
    const isReadOnly = log.refusal !== undefined || (lock === undefined && fs.lock !== undefined);
    state.seq_last = replay.sequence.last ?? 0;
    const problem = await new Start(init, fs, log, replay, state).run(end_mark ?? 0);
    // Not even after a remount: another process may have opened and changed the log meanwhile.
    const read_only = isReadOnly ? new RonError('not_ready', READ_ONLY) : undefined;
    const newest_ms = replay.newest_s * 1000;
    return { log, state, reserve, lock, end: new EndMark(fs, dir, end_mark ?? 0), problem, newest_ms, read_only };
  } catch (error) {
    await log?.close();
    lock?.[Symbol.dispose]();
    throw error;
  }
}

/** A directory that cannot be written, or that no other process can see, needs no lock. */
function lockOf(fs: FileSystem, dir: string): Disposable | undefined {
  if (fs.lock === undefined) return undefined;
  let lock: Disposable | undefined;
  try {
    lock = fs.lock(join(dir, 'lock'));
  } catch (error) {
    const { errcode } = error as { readonly errcode?: number };
    if (errcode !== SQLITE_READONLY && errcode !== SQLITE_CANTOPEN) throw error;
    return undefined;
  }
  if (lock !== undefined) return lock;
  throw new RonError('not_ready', `another process has the mailbox in ${dir} open: stop it first`);
}

/** A segment full of live messages fits into the reserve beside the leases: a full disk can be compacted. */
function segmentBytes({ segment_bytes }: MailboxLogInit, { bytes: reserve_bytes }: Reserve): number {
  return reserve_bytes === 0
    ? segment_bytes
    : Math.min(segment_bytes, Math.max(SEGMENT_BYTES_SMALL, reserve_bytes / 2));
}

async function replayLog(
  { dir, onProgress, onEvent, signal }: MailboxLogInit,
  fs: FileSystem,
  segment_bytes: number,
  end_mark: number,
  replay: Replay,
  { onDurable, firstRecords }: DurableState,
): Promise<SegmentLog> {
  const bytes_total = await sizeOf(fs, join(dir, 'segments'));
  let bytes = 0;
  return await SegmentLog.open({
    dir,
    fs,
    segment_bytes,
    queue_bytes_max: QUEUE_BYTES_MAX,
    batch_records_max: BATCH_RECORDS_MAX,
    // A number that was acknowledged is not used again, even if its record is lost.
    seq_known: end_mark,
    onRecord: (head, position, body) => {
      bytes += recordBytes(head.payload_bytes, head.meta_bytes);
      if (replay.records % PROGRESS_RECORDS === 0) onProgress?.({ bytes, bytes_total });
      replay.onRecord(head, position, body);
    },
    onBadBody: replay.onBadBody,
    skipsUnreadable: true,
    onDamage: ({ what, segment, offset, bytes: damaged }) =>
      onEvent?.({ kind: 'damage', problem: `${what} of ${damaged} bytes in segment ${segment} at ${offset}` }),
    onDurable,
    firstRecords,
    signal,
  });
}

async function sizeOf(fs: FileSystem, segments: string): Promise<number> {
  let bytes = 0;
  for (const name of await fs.list(segments).catch(() => [])) {
    const file = await fs.open(join(segments, name), 'read');
    try {
      bytes += await file.size();
    } finally {
      await file.close();
    }
  }
  return bytes;
}

/** The steps after the replay. */
class Start {
  readonly #init: MailboxLogInit;
  readonly #fs: FileSystem;
  readonly #log: SegmentLog;
  readonly #replay: Replay;
  readonly #state: DurableState;

  constructor(init: MailboxLogInit, fs: FileSystem, log: SegmentLog, replay: Replay, state: DurableState) {
    this.#init = init;
    this.#fs = fs;
    this.#log = log;
    this.#replay = replay;
    this.#state = state;
  }

  async run(end_mark: number): Promise<LedgerProblem | undefined> {
    const { target } = this.#init;
    const { problem, unsynced } = this.#replay.end(target.counts(), end_mark);
    const acceptance = await this.#takeAcceptance();
    if (problem !== undefined && !(await this.#accept(problem, acceptance))) {
      this.#init.onEvent?.({ kind: 'ledger broken', problem });
      this.#replay.reportTotals();
      return problem;
    }
    if (unsynced.length > 0) await this.#unlessReadOnly(() => this.#excuse(unsynced));
    this.#replay.reportTotals();
    await this.#unlessReadOnly(() => this.#settleDamaged());
    return undefined;
  }

  async #takeAcceptance(): Promise<Acceptance | undefined> {
    try {
      return await takeAcceptance(this.#fs, this.#init.dir);
    } catch (error) {
      const cause = error instanceof Error ? error.message : String(error);
      this.#init.onEvent?.({
        kind: 'damage',
        problem: `accept.json was not used: ${cause}; run ron queue accept again`,
      });
      return undefined;
    }
  }

  /** Whether the operator accepted exactly this problem. */
  async #accept(problem: LedgerProblem, acceptance: Acceptance | undefined): Promise<boolean> {
    const { target, onEvent } = this.#init;
    if (acceptance?.problem_sha256 !== problem.sha256) return false;
    const { topics } = this.#state;
    const entry = acceptedEntry(problem, acceptance.reason, sched.wall_ms(), topics, target.counts());
    await this.#appendAccepted(entry);
    for (const { number, totals } of entry.totals) topics.setTotals(number, totals);
    onEvent?.({ kind: 'ledger accepted', problem });
    return true;
  }

  /** Later records have marks above the missing numbers: without this record the next start would report them. */
  async #excuse(problems: readonly string[]): Promise<void> {
    this.#init.onEvent?.({
      kind: 'damage',
      problem: `${POWER_FAILURE}: ${problems.slice(0, EXCUSED_LOGGED).join('; ')}`,
    });
    await this.#appendAccepted({ at_ms: sched.wall_ms(), reason: POWER_FAILURE, isAll: false, problems, totals: [] });
  }

  async #appendAccepted(entry: AcceptedEntry): Promise<void> {
    const id = markId(this.#state.seq_last);
    await this.#log.append([{ type: RECORD.accepted, id, payload: encodeAccepted(entry) }], this.#init.signal);
  }

  /** Makes dead letters of the messages with a damaged body. */
  async #settleDamaged(): Promise<void> {
    const damaged = [...this.#replay.damaged];
    for (let at = 0; at < damaged.length; at += BATCH) {
      const batch = damaged.slice(at, at + BATCH);
      const dead = {
        outcome: 'dead',
        reason: 'damaged',
        attempts: 0,
        dead_ms: sched.wall_ms(),
        error: undefined,
      } as const;
      const entries = batch.map(([seq, { topic }]) => ({ ...dead, seq, topic }));
      await this.#log.append([this.#state.settled(entries)], this.#init.signal);
      for (const [seq, { topic, id }] of batch) this.#init.onEvent?.({ kind: 'message damaged', topic, id, seq });
    }
  }

  async #unlessReadOnly(step: () => Promise<void>): Promise<void> {
    try {
      await step();
    } catch (error) {
      this.#init.signal.throwIfAborted();
      const problem = `the start could not write: ${error instanceof Error ? error.message : String(error)}`;
      this.#init.onEvent?.({ kind: 'damage', problem });
    }
  }
}
