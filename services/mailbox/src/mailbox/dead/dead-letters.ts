/**
 * Dead letters: list, replay, delete.
 *
 * Contract: a replay stores a new message with `replay_of` and removes the dead letter in one atomic group. It has a new id
 * and no idempotency key, and counts against the limits of its topic; it fails with `storage_full` if none of them has room. Dead
 * letters that are being settled or whose record is damaged are left out.
 * Bound: a replay stores `GROUP_MESSAGES` messages and `GROUP_BYTES` payload bytes, and the caller repeats it; `LISTINGS_MAX`
 * listings at a time. Overflow: `busy`. Cancellation: between two groups.
 */
import { RonError } from '@ron/kernel';
import {
  formatAddress,
  formatUlid,
  MAILBOX_LIMITS,
  type DeadLetterDto,
  type DeadPageDto,
  type DeadSelection,
} from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE, STATE, type Slot } from '../../queue/states.ts';
import type { MailboxLog } from '../../store/mailbox-log.ts';
import type { StoredMessage } from '../../store/read-message.ts';
import type { SettledEntry } from '../../store/records.ts';
import type { MessageReads } from '../receive/message-reads.ts';
import { NewIds } from '../new-id.ts';
import { PendingSend } from '../send/pending-send.ts';
import type { SettledBy, Settling } from '../settle/settling.ts';
import type { Topic, Topics } from '../topics/topics.ts';
import type { AgeClock } from '../age-clock.ts';

const GROUP_MESSAGES = MAILBOX_LIMITS.batch_messages;
const GROUP_BYTES = MAILBOX_LIMITS.batch_bytes;
/** A listing reads the disk many times, in a worker that acks need too. */
const LISTINGS_MAX = 8;
const RETRY_AFTER_MS = 1000;

export interface DeadLettersInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly topics: Topics;
  readonly settling: Settling;
  readonly reads: MessageReads;
  readonly log: Pick<MailboxLog, 'appendSettled' | 'appendReplayed'>;
}

/** A dead letter and the message that replays it. */
interface Copy {
  readonly seq: number;
  readonly send: PendingSend;
}

export class DeadLetters {
  readonly #init: DeadLettersInit;
  readonly #ids = new NewIds();
  #listings = 0;

  constructor(init: DeadLettersInit) {
    this.#init = init;
  }

  async list(topic: Topic, after: number, limit: number, signal: AbortSignal): Promise<DeadPageDto> {
    if (this.#listings >= LISTINGS_MAX)
      throw new RonError('busy', `${LISTINGS_MAX} listings of dead letters are under way`, {
        retry_after_ms: RETRY_AFTER_MS,
      });
    this.#listings += 1;
    try {
      return await this.#list(topic, after, limit, signal);
    } finally {
      this.#listings -= 1;
    }
  }

  async #list(topic: Topic, after: number, limit: number, signal: AbortSignal): Promise<DeadPageDto> {
    const slots = this.#init.state.deadAfter(topic.state, after, limit + 1);
    const readError = this.#init.reads.errorReader();
    const seqs = slots.slice(0, limit).map((slot) => this.#init.state.seqOf(slot));
    const dead: DeadLetterDto[] = [];
    for (const seq of seqs) {
      const letter = await this.#describe(seq, readError, signal);
      if (letter !== undefined) dead.push(letter);
    }
    return slots.length > limit ? { dead, next: seqs.at(-1)! } : { dead };
  }

  async delete(topic: Topic, which: DeadSelection, signal: AbortSignal): Promise<number> {
    const { limit = MAILBOX_LIMITS.page } = which;
    let deleted = 0;
    for (let after = 0; deleted < limit;) {
      const group = this.#next(topic, which, after, Math.min(GROUP_MESSAGES, limit - deleted));
      if (group.length === 0) return deleted;
      after = group.at(-1)!;
      const settlements = group
        .filter((seq) => this.#init.state.findDead(seq) !== NONE)
        .map((seq) => this.#begin(topic, seq, 'delete'));
      const entries = settlements.map(({ entry }) => entry);
      await this.#init.settling.commit(settlements, () => this.#init.log.appendSettled(entries, signal));
      deleted += settlements.length;
    }
    return deleted;
  }

  /** Replays one group, so that large messages do not exceed the deadline of the call: the caller repeats it. */
  async replay(topic: Topic, which: DeadSelection, signal: AbortSignal): Promise<number> {
    const { limit = MAILBOX_LIMITS.page } = which;
    // A group of dead letters that cannot be replayed does not hide those after it.
    for (let after = 0; ;) {
      const group = this.#next(topic, which, after, Math.min(GROUP_MESSAGES, limit));
      const copies = await this.#copies(topic, group, signal);
      if (copies.after === undefined) return 0;
      after = copies.after;
      const { count, isFull } = await this.#store(topic, copies.sends, signal);
      if (count > 0) return count;
      if (isFull) throw new RonError('storage_full', `the topic ${topic.name} is full`);
    }
  }

  /** The next dead letters after a number, by number. */
  #next(topic: Topic, { seqs }: DeadSelection, after: number, max: number): number[] {
    const { state } = this.#init;
    if (seqs === undefined) return state.deadAfter(topic.state, after, max).map((slot) => state.seqOf(slot));
    const left = seqs.filter((seq) => seq > after && this.#slotOf(topic, seq) !== NONE);
    return [...new Set(left)].toSorted((one, other) => one - other).slice(0, max);
  }

  #slotOf(topic: Topic, seq: number): Slot {
    const { state } = this.#init;
    const slot = state.find(seq);
    if (slot === NONE || state.stateOf(slot) !== STATE.dead) return NONE;
    return state.topicOf(slot) === topic.state ? slot : NONE;
  }

  #begin(topic: Topic, seq: number, by: SettledBy) {
    const entry: SettledEntry = { outcome: 'removed', seq, topic: topic.name };
    return this.#init.settling.begin(entry, by);
  }

  /** Reads dead letters and makes messages of them, until the group is full. `after`: the last one that was read. */
  async #copies(topic: Topic, group: readonly number[], signal: AbortSignal) {
    const sends: Copy[] = [];
    let bytes = 0;
    let after: number | undefined;
    for (const seq of group) {
      const slot = this.#slotOf(topic, seq);
      bytes += slot === NONE ? 0 : this.#init.state.payloadBytes(slot);
      if (sends.length > 0 && bytes > GROUP_BYTES) break;
      after = seq;
      const read = await this.#init.reads.read(seq, signal);
      if (typeof read !== 'string') sends.push({ seq, send: this.#copyOf(topic, read) });
    }
    return { sends, after };
  }

  #copyOf(topic: Topic, { id, meta: { topic: name, key, headers, b3 }, payload }: StoredMessage): PendingSend {
    const sent_ms = this.#init.ages.stamp_ms();
    const replay_of = formatUlid(id);
    const meta = { topic: name, key, headers, b3, sent_ms, not_before_ms: 0, idempotency_key: undefined, replay_of };
    return new PendingSend({
      topic,
      id: this.#ids.next(sent_ms),
      meta,
      payload,
      key_hash: undefined,
      due_ms: undefined,
    });
  }

  /** Stores the messages and removes their dead letters in one group; leaves out those that were settled meanwhile. */
  async #store(topic: Topic, copies: readonly Copy[], signal: AbortSignal) {
    const policy = this.#init.topics.policyOf(topic);
    const free = copies.filter(({ seq }) => this.#init.state.findDead(seq) !== NONE);
    const fits = free.findIndex(({ send }) => !topic.state.reserve(send.payload.length, policy));
    const taken = fits === -1 ? free : free.slice(0, fits);
    const settlements = taken.map(({ seq }) => this.#begin(topic, seq, 'replay'));
    const sends = taken.map(({ send }) => send);
    const removed = settlements.map(({ entry }) => entry);
    try {
      await this.#init.settling.commit(settlements, () => this.#init.log.appendReplayed(sends, removed, signal));
    } finally {
      for (const { seq, payload } of sends) if (seq === undefined) topic.state.unreserve(payload.length);
    }
    return { count: taken.length, isFull: fits !== -1 };
  }

  async #describe(
    seq: number,
    readError: ReturnType<MessageReads['errorReader']>,
    signal: AbortSignal,
  ): Promise<DeadLetterDto | undefined> {
    const { state, reads } = this.#init;
    const slot = state.find(seq);
    const view = slot === NONE ? undefined : state.view(slot);
    if (view?.dead === undefined) return undefined;
    const { place, dead, attempts, sent_ms } = view;
    const stored = await reads.readMeta(seq, signal);
    const error = await readError(seq, signal);
    const meta = stored?.meta;
    return {
      id: stored === undefined ? '' : formatUlid(stored.id),
      seq,
      reason: dead.reason,
      attempts,
      ...(error !== undefined && { error }),
      ...(meta?.key !== undefined && { key: meta.key }),
      headers: meta?.headers ?? {},
      b3: meta === undefined ? '' : formatAddress(meta.b3),
      bytes: place.payload_bytes,
      sent_ms: meta?.sent_ms ?? sent_ms,
      dead_ms: dead.dead_ms,
    };
  }
}
