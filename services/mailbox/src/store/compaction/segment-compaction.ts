/**
 * Moves everything that is still needed out of a segment. The caller removes the segment.
 *
 *     live message        appended again with its number and its state
 *     idempotency key     into a `seen` record, while it is remembered
 *     the rest            its ledger totals are in the `base` of the next segment
 *
 * Contract: a message is moved only if it is unsettled; that check and the append are one synchronous step, so a settlement
 * follows the move in the log. A message that is settling is waited for. All moves are durable when it resolves.
 * A live message that cannot be read makes it reject: a read error may go away, and the segment has the only copy.
 * After a failure or a crash in between, the next call continues: moved messages have another place.
 * Bound: `STEP_BYTES` and one message, `STEP_MESSAGES` messages and `STEP_KEYS` keys are in memory.
 * Cancellation: by the signal, between two steps.
 */
import { orAborted, RonError } from '@ron/kernel';
import { type Appended, type Position, type RecordHead, type RecordInput } from '@ron/log';
import { orDamaged } from '../codec/bytes.ts';
import { decodeSeen, encodeSeen } from '../codec/entry-codec.ts';
import {
  decodeMessageId,
  DecodedMeta,
  encodeMessageId,
  encodeMeta,
  isMetaIntact,
  lostMeta,
  markId,
} from '../codec/message-codec.ts';
import type { HeldMessage, LiveMessages } from './live-messages.ts';
import type { MailboxLog } from '../mailbox-log.ts';
import { unlessBadSector } from '../read-message.ts';
import { RECORD, type MessageMeta, type MessageState, type SeenEntry } from '../records.ts';

const STEP_BYTES = 512 * 1024;
const STEP_MESSAGES = 128;
const STEP_KEYS = 1024;

export interface CompactedSegment {
  readonly segment: number;
  /** Messages. */
  readonly moved: number;
  /** On disk. */
  readonly bytes: number;
}

/** A dead letter whose body was found to be damaged. */
export interface DamagedLetter {
  readonly topic: string;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly seq: number;
}

export interface SegmentCompactionInit {
  readonly log: MailboxLog;
  readonly live: LiveMessages;
  /** Called once its new reason is durable. */
  readonly onDamaged: (letter: DamagedLetter) => void;
}

/** A message of the segment that was live when it was read. */
interface Candidate {
  readonly seq: number;
  readonly time_s: number;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly topic: number;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
  readonly position: Position;
  readonly isDamaged: boolean;
}

/** The last errors of dead letters, by number; `at` is the record that they were read from. */
type DeadErrors = Map<number, { readonly at: Position; readonly error: string | undefined }>;

const isAt = (a: Position, b: Position): boolean => a.segment === b.segment && a.offset === b.offset;

export class SegmentCompaction {
  readonly #log: MailboxLog;
  readonly #live: LiveMessages;
  readonly #segment: number;
  readonly #signal: AbortSignal;
  readonly #onDamaged: (message: DamagedLetter) => void;
  #candidates: Candidate[] = [];
  #candidate_bytes = 0;
  #keys: SeenEntry[] = [];
  #moved = 0;

  constructor({ log, live, onDamaged }: SegmentCompactionInit, segment: number, signal: AbortSignal) {
    this.#log = log;
    this.#live = live;
    this.#segment = segment;
    this.#signal = signal;
    this.#onDamaged = onDamaged;
  }

  async run(): Promise<CompactedSegment> {
    const { segments } = this.#log;
    const segment = this.#segment;
    const bytes = segments.files.bytesOf(segment);
    // Damage matters only if it hides a live message, which is checked below.
    const part = { onBadBody: this.#onBadBody, skipsUnreadable: true };
    await segments.scanSegment(segment, this.#onRecord, () => undefined, this.#signal, part);
    await this.#flush();
    await this.#writeKeys();
    if (this.#live.liveBytesOf(segment) > 0) {
      throw new RonError('not_ready', `segment ${segment} holds messages that cannot be read: restart mailbox`);
    }
    return { segment, moved: this.#moved, bytes };
  }

  readonly #onRecord = (head: RecordHead, position: Position, body: Buffer): void | Promise<void> => {
    if (head.type === RECORD.message) this.#take(head, position, body);
    else if (head.type === RECORD.seen) this.#takeKeys(body);
    const isFull = this.#candidate_bytes >= STEP_BYTES || this.#candidates.length >= STEP_MESSAGES;
    if (isFull) return this.#flush();
    if (this.#keys.length >= STEP_KEYS) return this.#writeKeys();
  };

  readonly #onBadBody = (head: RecordHead, offset: number, body: Buffer): boolean => {
    if (head.type === RECORD.message) this.#take(head, { segment: this.#segment, offset }, body, true);
    return true;
  };

  /** A message that is gone, or has moved, needs nothing but its key. */
  #take(head: RecordHead, position: Position, body: Buffer, isDamaged = false): void {
    const id = decodeMessageId(head.id);
    const row = id && this.#log.topics.at(id.topic);
    if (id === undefined || row === undefined) return;
    const { seq, time_s, payload_bytes } = head;
    const found = this.#live.find(seq);
    const isElsewhere = found.kind === 'held' && !isAt(found.place, position);
    if (isElsewhere) return;
    const needed = found.kind === 'gone' ? body.subarray(payload_bytes) : body;
    const copy = Buffer.from(needed);
    const bytes = found.kind === 'gone' ? copy : copy.subarray(payload_bytes);
    const intact = isMetaIntact(id, bytes) ? orDamaged(() => new DecodedMeta(row.topic, bytes)) : undefined;
    const meta = intact ?? lostMeta(row.topic, time_s * 1000);
    if (found.kind === 'gone') return this.#keepKey(meta, seq);
    const payload = isDamaged ? copy.subarray(0, 0) : copy.subarray(0, payload_bytes);
    this.#candidates.push({ seq, time_s, id: id.ulid, topic: id.topic, meta, payload, position, isDamaged });
    this.#candidate_bytes += copy.length;
  }

  #keepKey(meta: MessageMeta, seq: number): void {
    const { topic, idempotency_key } = meta;
    const entry = idempotency_key === undefined ? undefined : this.#live.seenOf(topic, idempotency_key, seq);
    if (entry !== undefined) this.#keys.push(entry);
  }

  #takeKeys(payload: Buffer): void {
    // A copy: the entries are views.
    const entries = orDamaged(() => decodeSeen(Buffer.from(payload), this.#log.topics.nameOf));
    for (const entry of entries ?? []) if (this.#live.isSeen(entry)) this.#keys.push(entry);
  }

  async #flush(): Promise<void> {
    const errors: DeadErrors = new Map();
    while (this.#candidates.length > 0) {
      this.#signal.throwIfAborted();
      for (const { seq, position, isDamaged } of this.#candidates) {
        if (!isDamaged) continue;
        await this.#requireDamaged(seq, position);
        await this.#live.damaged(seq, this.#signal);
      }
      await this.#readErrors(errors);
      const { appended, rest } = this.#moveLive(errors);
      await appended;
      this.#candidates = rest;
      for (const { seq } of rest) await this.#untilSettled(seq);
    }
    this.#candidate_bytes = 0;
    if (this.#keys.length >= STEP_KEYS) await this.#writeKeys();
  }

  /** Rejects if the record could not be read, or can be read again: a read error is not damage, and may go away. */
  async #requireDamaged(seq: number, at: Position): Promise<void> {
    const found = this.#live.find(seq);
    if (found.kind !== 'held' || !isAt(found.place, at)) return;
    const cause = await this.#log.reader.readRecord(at).then(
      (record) => (record === undefined ? undefined : 'a read failed'),
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    if (cause === undefined) return;
    this.#log.disk.readFailed(at, cause);
    throw new RonError('not_ready', `message ${seq} in segment ${at.segment} cannot be read: ${cause}`);
  }

  async #untilSettled(seq: number): Promise<void> {
    const found = this.#live.find(seq);
    if (found.kind === 'settling') await orAborted(found.ended(), this.#signal);
  }

  /** Reads the last errors of dead letters, which are not in RAM. */
  async #readErrors(errors: DeadErrors): Promise<void> {
    const readDead = this.#log.reader.deadReader();
    for (const { seq } of this.#candidates) {
      const found = this.#live.find(seq);
      if (found.kind !== 'held' || found.dead === undefined || errors.has(seq)) continue;
      const { at } = found.dead;
      const details = await unlessBadSector(readDead(at, seq));
      errors.set(seq, { at, error: details?.error });
    }
  }

  /**
   * Appends the candidates that are live, without waiting in between: a settlement that comes later is later in the log.
   * `rest`: those that are settling, became dead letters meanwhile, or are damaged and not dead letters yet.
   */
  #moveLive(errors: DeadErrors): { readonly appended: Promise<void>; readonly rest: Candidate[] } {
    const rest: Candidate[] = [];
    const records: RecordInput[] = [];
    for (const candidate of this.#candidates) {
      const found = this.#live.find(candidate.seq);
      if (found.kind === 'gone') this.#keepKey(candidate.meta, candidate.seq);
      else if (found.kind === 'settling') rest.push(candidate);
      else if (found.dead === undefined ? candidate.isDamaged : !errors.has(candidate.seq)) rest.push(candidate);
      else if (isAt(found.place, candidate.position)) records.push(this.#movedRecord(candidate, found, errors));
    }
    if (records.length === 0) return { appended: Promise.resolve(), rest };
    this.#moved += records.length;
    return { appended: this.#log.append(records, this.#signal), rest };
  }

  #movedRecord(candidate: Candidate, found: HeldMessage, errors: DeadErrors): RecordInput {
    const { seq, time_s, id, topic, meta, payload, isDamaged } = candidate;
    const { delivery, attempts, nonce, until_ms, visibility_ms, not_before_ms } = found;
    // Without its payload the record is intact again: only the reason states the damage.
    const reason = isDamaged ? 'damaged' : found.dead?.reason;
    const dead = found.dead && { reason: reason!, dead_ms: found.dead.dead_ms };
    const error = dead === undefined ? found.error : errors.get(seq)?.error;
    const state: MessageState = { delivery, attempts, nonce, until_ms, visibility_ms, not_before_ms, error, dead };
    const bytes = encodeMeta(meta, { state });
    const record_id = encodeMessageId(id, topic, bytes, this.#log.seq_durable, state);
    const apply = ({ segment, offset }: Appended): void => {
      const place = { segment, offset, payload_bytes: payload.length, meta_bytes: bytes.length };
      this.#log.target.onMessage({ seq, source: undefined, id, place, meta, moved: state, isDamaged: false });
      if (reason !== found.dead?.reason) this.#onDamaged({ topic: meta.topic, id, seq });
    };
    return { type: RECORD.message, id: record_id, payload, meta: bytes, seq, time_s, context: apply };
  }

  async #writeKeys(): Promise<void> {
    while (this.#keys.length > 0) {
      const keys = this.#keys.splice(0, STEP_KEYS);
      const payload = encodeSeen(keys, this.#log.topics.numberOf);
      await this.#log.append([{ type: RECORD.seen, id: markId(this.#log.seq_durable), payload }], this.#signal);
    }
  }
}
