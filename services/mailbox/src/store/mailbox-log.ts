/**
 * The log of a mailbox: all messages, and everything that happened to them, in one `SegmentLog`.
 *
 *     DIR/lock           held while a process has the mailbox open
 *     DIR/segments/      the log; each segment begins with a `base` record
 *     DIR/end            the number of the last durable record (end-mark.ts)
 *     DIR/accept.json    a ledger problem that the operator accepted, until the next start (accept.ts)
 *
 * The number of a message's record is its sequence number. The formats are in codec/, the totals in ledger/.
 *
 * Contract: an append of messages, settlements or a policy resolves when it is durable; the target has got it before, in the
 * step of the sync. If it rejects, the target has not got it and will not. Leases and returns resolve when they are written; on
 * a disk that has only settlement space left they are not written, and only the state of the caller has them.
 * Bound: as in SegmentLog. Overflow: `busy`. A full disk refuses messages at its reserve with `storage_full`; other records
 * may use the reserve. With a ledger problem, all appends are refused with `not_ready`.
 * Cancellation: an append whose signal aborts before it is being written rejects; later its outcome is that of the write.
 */
import { assert, RonError } from '@ron/kernel';
import {
  isUnreadable,
  recordBytes,
  type Appended,
  type AppendInit,
  type RecordInput,
  type Reserve,
  type SegmentLog,
} from '@ron/log';
import type { TopicPolicy } from '@ron/proto';
import { orDamaged } from './codec/bytes.ts';
import { decodeBase, encodeLeased, encodeReturned, encodeTopic } from './codec/entry-codec.ts';
import { encodeMessageId, encodeMeta, markId } from './codec/message-codec.ts';
import { DiskCondition } from './disk-condition.ts';
import type { Apply, DurableState } from './durable-state.ts';
import type { EndMark } from './end-mark.ts';
import { openLog, type MailboxLogInit, type OpenedLog, type StoreEvent } from './open-log.ts';
import type { LedgerProblem } from './ledger/problems.ts';
import { MessageReader, unlessBadSector } from './read-message.ts';
import {
  RECORD,
  type LeaseEntry,
  type MessageInput,
  type RecordTarget,
  type ReturnEntry,
  type SettledEntry,
  type TopicTotals,
} from './records.ts';
import { countSettled, heldProblem } from './ledger/held-differences.ts';
import type { LedgerTopics } from './ledger/ledger-topics.ts';
import { TopicNumbers } from './topic-numbers.ts';

export type { MailboxLogInit, ReplayProgress, StoreEvent } from './open-log.ts';
export type { DeadDetails, StoredMessage } from './read-message.ts';

const EMPTY = new Uint8Array(0);

export class MailboxLog implements AsyncDisposable {
  readonly segments: SegmentLog;
  readonly reserve: Reserve;
  /** Verified reads of messages and of the errors of dead letters. */
  readonly reader: MessageReader;
  readonly disk: DiskCondition;
  /** When the newest record of the start was appended; 0 if there was none. */
  readonly newest_ms: number;
  readonly #state: DurableState;
  readonly #numbers: TopicNumbers;
  readonly #lock: Disposable | undefined;
  readonly #end: EndMark;
  readonly #onEvent: (event: StoreEvent) => void;
  #problem: LedgerProblem | undefined;
  /** Why the directory cannot be written until the next start; undefined if it can. */
  readonly #read_only: RonError | undefined;

  private constructor(
    { log, state, reserve, lock, end, problem, newest_ms, read_only }: OpenedLog,
    init: MailboxLogInit,
  ) {
    this.segments = log;
    this.reserve = reserve;
    this.reader = new MessageReader(log, state.topics);
    this.#state = state;
    this.#numbers = new TopicNumbers(state);
    this.#lock = lock;
    this.#end = end;
    this.#problem = problem;
    this.newest_ms = newest_ms;
    this.#onEvent = (event) => init.onEvent?.(event);
    this.disk = new DiskCondition(reserve, this.#onEvent);
    this.#read_only = read_only;
    if (read_only !== undefined) this.disk.failed(read_only);
  }

  /**
   * Locks the directory, replays the log into `target` and checks the ledger. Rejects with `not_ready` if another process has
   * the lock. A ledger problem does not reject: see `problem`.
   */
  static async open(init: MailboxLogInit): Promise<MailboxLog> {
    return new MailboxLog(await openLog(init), init);
  }

  /** Why the ledger does not balance; undefined if it does. */
  get problem(): LedgerProblem | undefined {
    return this.#problem;
  }

  get topics(): LedgerTopics {
    return this.#state.topics;
  }

  get target(): RecordTarget {
    return this.#state.target;
  }

  /** The number of the last durable record. */
  get seq_durable(): number {
    return this.#state.seq_last;
  }

  /** Whether a segment holds `seen` records. */
  hasKeys(segment: number): boolean {
    return this.#state.key_segments.has(segment);
  }

  /** Whether a later segment has a durable `base`, which holds the totals, the topics and the numbers of this one. */
  isSummarized(segment: number): boolean {
    return this.nextOf(segment) !== undefined;
  }

  /** The next segment with durable records. */
  nextOf(segment: number): number | undefined {
    const { files } = this.segments;
    return files.numbers().find((later) => later > segment && files.durableBytesOf(later) > 0);
  }

  /** Whether a segment begins with an intact `base`. */
  async hasBase(segment: number): Promise<boolean> {
    const record = await unlessBadSector(this.reader.readRecord({ segment, offset: 0 }));
    if (record?.head.type !== RECORD.base) return false;
    return orDamaged(() => decodeBase(Buffer.from(record.payload))) !== undefined;
  }

  /** Whether the log may be written. */
  get #isSound(): boolean {
    return this.#problem === undefined && this.#read_only === undefined;
  }

  /** Writes the number of the last durable record to the end mark. One call at a time. */
  async noteEnd(): Promise<void> {
    if (this.#isSound) await this.#end.note(this.#state.seq_last);
  }

  /** Removes a segment from which everything was moved. */
  async remove(segment: number): Promise<void> {
    assert(this.isSummarized(segment), 'a later segment has a base');
    await this.segments.remove(segment);
    this.#state.key_segments.delete(segment);
  }

  /** Begins a new segment, so that the one being written can be compacted. */
  async rotate(signal: AbortSignal): Promise<void> {
    this.segments.rotate();
    await this.segments.sync(signal);
  }

  /** The totals of a topic by the durable records. */
  totalsOf(topic: string): TopicTotals | undefined {
    return this.#state.topics.get(topic);
  }

  /** Appends messages, and creates their topics. Resolves with their sequence numbers. */
  appendMessages(messages: readonly MessageInput[], signal: AbortSignal): Promise<readonly number[]> {
    return this.#appendMessages(messages, undefined, signal);
  }

  /** Appends messages that replay dead letters: `removed[i]` is removed by `messages[i]`, in one record. */
  appendReplayed(
    messages: readonly MessageInput[],
    removed: readonly SettledEntry[],
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    assert(messages.length === removed.length, 'each message replays one dead letter');
    return this.#appendMessages(messages, removed, signal);
  }

  async #appendMessages(
    messages: readonly MessageInput[],
    removed: readonly SettledEntry[] | undefined,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    const seqs: number[] = [];
    using topics = this.#numbers.ofGroup(messages);
    const { records } = topics;
    const mark = this.#state.seq_last;
    const metas_bytes: number[] = [];
    const apply = (place: Appended): void => {
      const index = seqs.push(place.seq) - 1;
      this.#applyMessage(messages[index]!, removed?.[index], metas_bytes[index]!, place);
    };
    for (const [index, { id, meta, payload }] of messages.entries()) {
      const bytes = encodeMeta(meta, { replaces: removed?.[index]!.seq });
      metas_bytes.push(bytes.length);
      const record_id = encodeMessageId(id, topics.numberOf(meta.topic), bytes, mark);
      records.push({ type: RECORD.message, id: record_id, payload, meta: bytes, context: apply });
    }
    const records_bytes = bytesOf(records);
    const refusal = this.disk.refusal(records_bytes);
    if (refusal !== undefined) throw refusal;
    using _ = this.disk.pend(records_bytes);
    await this.append(records, signal, { isApplied: () => seqs.length === messages.length });
    return seqs;
  }

  #applyMessage(source: MessageInput, removed: SettledEntry | undefined, meta_bytes: number, at: Appended): void {
    const { topics, target } = this.#state;
    const { id, meta, payload } = source;
    const row = topics.get(meta.topic)!;
    row.sent += 1;
    const { segment, offset, seq } = at;
    const place = { segment, offset, payload_bytes: payload.length, meta_bytes };
    target.onMessage({ seq, source, id, place, meta, moved: undefined, isDamaged: false });
    if (removed === undefined) return;
    countSettled(row, 'removed');
    target.onSettled([removed], at);
  }

  /** Resolves when the leases are written. The target gets no call. */
  async appendLeased(entries: readonly LeaseEntry[], signal: AbortSignal): Promise<void> {
    await this.#appendLease(this.#record(RECORD.leased, encodeLeased(entries)), entries.length, signal);
  }

  /** As `appendLeased`. */
  async appendReturned(entries: readonly ReturnEntry[], signal: AbortSignal): Promise<void> {
    await this.#appendLease(this.#record(RECORD.returned, encodeReturned(entries)), entries.length, signal);
  }

  async #appendLease(record: RecordInput, count: number, signal: AbortSignal): Promise<void> {
    this.#requireWritable();
    // [mailbox I-10] Any number of leases can be made of one message, but only one settlement.
    if (this.disk.isShort(bytesOf([record]))) return;
    await this.append([record], signal, { durable: false, count });
  }

  async appendSettled(entries: readonly SettledEntry[], signal: AbortSignal): Promise<void> {
    let isApplied = false;
    const record = this.#state.settled(entries, () => (isApplied = true));
    await this.append([record], signal, { count: entries.length, isApplied: () => isApplied });
  }

  /** Creates a topic, or replaces the fields that are set for it. */
  async appendTopic(topic: string, policy: Partial<TopicPolicy>, signal: AbortSignal): Promise<void> {
    const known = this.#state.topics.get(topic);
    const number = known?.number ?? this.#numbers.take(topic);
    try {
      let isApplied = false;
      const record = this.#topicRecord(number, topic, policy, () => (isApplied = true));
      await this.append([record], signal, { isApplied: () => isApplied });
    } finally {
      if (known === undefined) this.#numbers.release(topic);
    }
  }

  /** Compares the totals with the messages in RAM. A difference closes the log for appends. */
  check(): LedgerProblem | undefined {
    this.#problem ??= heldProblem(this.#state.topics, this.#state.target.counts());
    return this.#problem;
  }

  /** A proof found a difference: closes the log for appends. */
  onDifference(problem: LedgerProblem): void {
    this.#problem ??= problem;
    this.#onEvent({ kind: 'ledger broken', problem });
  }

  /**
   * Appends a group. An append of several segments can be durable and reported although it fails later (`isApplied`): then it
   * has succeeded.
   */
  async append(
    records: readonly RecordInput[],
    signal: AbortSignal,
    { isApplied, ...init }: AppendInit & { readonly isApplied?: () => boolean } = {},
  ): Promise<void> {
    this.#requireWritable();
    try {
      await this.segments.append(records, signal, init);
      this.disk.wrote(bytesOf(records));
    } catch (error) {
      this.disk.failed(error);
      if (isApplied?.() !== true) throw error;
      this.reserve.wrote(bytesOf(records));
    }
  }

  #requireWritable(): void {
    if (this.#problem !== undefined)
      throw new RonError('not_ready', `the ledger does not balance: ${this.#problem.text}`);
    if (this.#read_only !== undefined) throw this.#read_only;
  }

  /** After a failure, reads again, or appends a record, to learn whether the disk has recovered. Never rejects. */
  async probe(signal: AbortSignal): Promise<void> {
    const { unreadable } = this.disk;
    if (unreadable !== undefined) {
      const isUnreadableStill = await this.reader.readRecord(unreadable).then(() => false, isUnreadable);
      if (!isUnreadableStill) this.disk.readAgain();
    }
    if (this.disk.failure === undefined || this.#problem !== undefined) return;
    await this.append([this.#record(RECORD.probe, EMPTY)], signal).catch(() => undefined);
  }

  /** A record that is not a message. */
  #record(type: number, payload: Uint8Array, context?: Apply): RecordInput {
    return { type, id: markId(this.#state.seq_last), payload, context };
  }

  #topicRecord(number: number, topic: string, policy: Partial<TopicPolicy>, onApplied?: () => void): RecordInput {
    const apply = (): void => {
      this.#state.topics.put({ number, topic, policy });
      this.#state.target.onTopic(topic, policy);
      onApplied?.();
    };
    return this.#record(RECORD.topic, encodeTopic({ number, topic, policy, isNew: false }), apply);
  }

  /** Commits the waiting appends, closes the files and unlocks the directory. */
  async close(): Promise<void> {
    try {
      await this.segments.close();
    } finally {
      await this.#end.close(this.#isSound ? this.#state.seq_last : 0);
      this.#lock?.[Symbol.dispose]();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const bytesOf = (records: readonly RecordInput[]): number =>
  records.reduce((sum, { payload, meta }) => sum + recordBytes(payload.length, meta?.length ?? 0), 0);
