/**
 * Applies the records of the log to the state: at a start all of them, later those that a sync has made durable, in the
 * synchronous step of the sync.
 *
 * Contract: sends and settlements change the state here and nowhere else, so that a replay and live operation agree. Leases
 * and returns are applied by the caller that appends them; a start reports them here. An entry of a message that is not held
 * is ignored: its message has left the log. At a start, remaining times are clamped: a wall clock that jumped costs at most
 * one visibility or one delay.
 */
import type { Position } from '@ron/log';
import { sched } from '@ron/kernel';
import type { TopicPolicy } from '@ron/proto';
import type { MailboxState } from '../queue/mailbox-state.ts';
import { idempotencyHash, type SeenKeys } from '../queue/seen-keys.ts';
import { NONE, STATE, type Slot } from '../queue/states.ts';
import {
  isApplicable,
  type HeldCounts,
  type LeaseEntry,
  type MessageEntry,
  type MessageState,
  type RecordTarget,
  type ReturnEntry,
  type SeenEntry,
  type SettledEntry,
  type TopicTotals,
} from '../store/records.ts';
import type { LastErrors } from './settle/last-errors.ts';
import { PendingSend } from './send/pending-send.ts';
import type { Settlement, Settling } from './settle/settling.ts';
import type { Topic, Topics } from './topics/topics.ts';

export interface StateTargetInit {
  readonly state: MailboxState;
  readonly seen: SeenKeys;
  readonly topics: Topics;
  readonly errors: LastErrors;
  readonly settling: Settling;
  readonly onTopicCreated: (topic: string) => void;
  /** A live settlement was applied. */
  readonly onSettlement: (topic: Topic, settlement: Settlement) => void;
  /** Messages of these topics may have become visible, or due earlier. */
  readonly onChanged: (topics: ReadonlySet<string>) => void;
}

export class StateTarget implements RecordTarget {
  readonly #init: StateTargetInit;
  readonly #changed = new Set<string>();
  #isLive = false;
  /** The clocks at the start: one reading for the whole replay. */
  readonly #start_now_ms = sched.now_ms();
  readonly #start_wall_ms = sched.wall_ms();

  constructor(init: StateTargetInit) {
    this.#init = init;
  }

  /** The replay has ended. */
  goLive(): void {
    this.#isLive = true;
  }

  onTopic(name: string, policy: Partial<TopicPolicy>): void {
    const isNew = this.#init.topics.find(name) === undefined;
    this.#init.topics.found(name, policy);
    if (isNew && this.#isLive) this.#init.onTopicCreated(name);
  }

  onMessage(entry: MessageEntry): void {
    const { state, topics } = this.#init;
    const { seq, place, source, meta, moved } = entry;
    const slot = state.find(seq);
    if (slot !== NONE) return this.#onKnown(slot, entry);
    const topic = topics.find(meta.topic);
    if (topic === undefined) return;
    if (source instanceof PendingSend) return this.#onSent(topic, source, entry);
    const { sent_ms, key, not_before_ms } = meta;
    const due_ms =
      moved === undefined
        ? this.#replayDue(not_before_ms, not_before_ms - sent_ms)
        : this.#replayDue(moved.not_before_ms, moved.visibility_ms);
    const isMoved = moved !== undefined;
    const added = state.add({ topic: topic.state, seq, place, sent_ms, due_ms, key, isMoved });
    if (moved !== undefined) this.#restore(added, moved, entry);
    const key_end_ms = this.#replayKeyEnd(topic, sent_ms + this.#windowOf(topic));
    this.#remember(topic, entry, key_end_ms, this.#start_now_ms);
  }

  onLeased(entries: readonly LeaseEntry[]): void {
    for (const { seq, delivery, attempts, nonce, until_ms, visibility_ms } of entries) {
      const slot = this.#waiting(seq);
      if (slot === NONE) continue;
      // [mailbox I-9]
      const rest_ms = clamp(until_ms - this.#start_wall_ms, visibility_ms);
      this.#init.state.lease(slot, { delivery, attempts, nonce, due_ms: this.#start_now_ms + rest_ms });
      // Its receiver left before it had the answer.
      if (visibility_ms === 0) this.#init.state.release(slot, undefined);
    }
  }

  onReturned(entries: readonly ReturnEntry[]): void {
    for (const { seq, delivery, not_before_ms, delay_ms, error } of entries) {
      const slot = this.#waiting(seq);
      if (slot === NONE || this.#init.state.view(slot).delivery !== delivery) continue;
      this.#init.state.release(slot, this.#replayDue(not_before_ms, delay_ms));
      this.#init.errors.set(seq, error);
    }
  }

  onSettled(entries: readonly SettledEntry[], at: Position): void {
    for (const entry of entries) {
      const slot = this.#init.state.find(entry.seq);
      if (slot === NONE || !this.#settle(slot, entry, at)) continue;
      this.#init.errors.forget(entry.seq);
      const settlement = this.#init.settling.applied(entry.seq);
      const topic = this.#init.topics.find(entry.topic);
      if (settlement === undefined || topic === undefined) continue;
      this.#init.onSettlement(topic, settlement);
      this.#changed.add(entry.topic);
    }
  }

  onSeen(entries: readonly SeenEntry[]): void {
    for (const { topic: name, ...key } of entries) {
      const topic = this.#init.topics.find(name);
      if (topic === undefined) continue;
      const until_ms = this.#replayKeyEnd(topic, key.until_ms);
      this.#init.seen.add({ topic: topic.state, ...key, until_ms }, this.#start_now_ms);
    }
  }

  onEnd(): void {
    if (this.#changed.size === 0) return;
    const changed = new Set(this.#changed);
    this.#changed.clear();
    this.#init.onChanged(changed);
  }

  onTotals(name: string, totals: TopicTotals): void {
    const topic = this.#init.topics.find(name);
    if (topic !== undefined) this.#init.state.restoreTotals(topic.state, totals);
  }

  holds(seq: number): boolean {
    return this.#init.state.find(seq) !== NONE;
  }

  *counts(): Iterable<HeldCounts> {
    for (const { name, state } of this.#init.topics.all())
      yield { topic: name, waiting: state.waiting, dead: state.dead };
  }

  /** [mailbox I-1] The message is durable: it becomes visible now. */
  #onSent(topic: Topic, send: PendingSend, entry: MessageEntry): void {
    const { seq, place, meta } = entry;
    const { sent_ms, key } = meta;
    const due_ms = send.due_ms !== undefined && send.due_ms > sched.now_ms() ? send.due_ms : undefined;
    this.#init.state.add({ topic: topic.state, seq, place, sent_ms, due_ms, key, isMoved: false });
    topic.state.unreserve(send.payload.length);
    send.seq = seq;
    topic.counts.countSent('stored');
    const now_ms = sched.now_ms();
    this.#remember(topic, entry, now_ms + this.#windowOf(topic), now_ms);
    this.#changed.add(topic.name);
  }

  #onKnown(slot: Slot, { place, moved, isDamaged }: MessageEntry): void {
    if (isDamaged || moved === undefined) return;
    this.#init.state.move(slot, place);
    if (moved.dead === undefined) return;
    const { dead, attempts } = moved;
    this.#init.state.dead(slot, { ...dead, attempts, at: place });
  }

  /** A moved message whose segment is gone: the state that moved with it. */
  #restore(slot: Slot, moved: MessageState, { seq, place }: MessageEntry): void {
    const { state, errors } = this.#init;
    const { delivery, attempts, nonce, until_ms, visibility_ms, not_before_ms, dead, error } = moved;
    if (dead !== undefined) return state.dead(slot, { ...dead, attempts, at: place });
    errors.set(seq, error);
    if (delivery === 0) return;
    const rest_ms = clamp(until_ms - this.#start_wall_ms, visibility_ms);
    state.lease(slot, { delivery, attempts, nonce, due_ms: this.#start_now_ms + rest_ms });
    if (until_ms === 0) state.release(slot, this.#replayDue(not_before_ms, visibility_ms));
  }

  #settle(slot: Slot, entry: SettledEntry, at: Position): boolean {
    const { state } = this.#init;
    const isDead = state.stateOf(slot) === STATE.dead;
    if (!isApplicable(entry.outcome, isDead)) return false;
    if (entry.outcome === 'dead') {
      const { reason, dead_ms, attempts } = entry;
      state.dead(slot, { reason, dead_ms, attempts, at });
      return true;
    }
    if (isDead) state.removed(slot);
    else state.acked(slot);
    return true;
  }

  /** [mailbox I-2] The key is remembered from the step in which its message is durable, and again after a restart. */
  #remember(topic: Topic, { seq, id, meta, source }: MessageEntry, until_ms: number, now_ms: number): void {
    if (meta.idempotency_key === undefined || until_ms <= now_ms) return;
    const known = source instanceof PendingSend ? source.key_hash : undefined;
    const hash = known ?? idempotencyHash(topic.name, meta.idempotency_key);
    this.#init.seen.add({ topic: topic.state, hash, id, seq, b3: meta.b3, until_ms }, now_ms);
  }

  #windowOf(topic: Topic): number {
    return this.#init.topics.policyOf(topic).window_ms;
  }

  /** The monotonic time at which a key ends, for a time of the records. */
  #replayKeyEnd(topic: Topic, until_ms: number): number {
    return this.#start_now_ms + clamp(until_ms - this.#start_wall_ms, this.#windowOf(topic));
  }

  #waiting(seq: number): Slot {
    const slot = this.#init.state.find(seq);
    return slot === NONE || this.#init.state.stateOf(slot) === STATE.dead ? NONE : slot;
  }

  /** The monotonic time for a time of the records; undefined if it has passed. */
  #replayDue(not_before_ms: number, delay_ms: number): number | undefined {
    // [mailbox I-9] A wall clock that was set back does not prolong a delay.
    const rest_ms = clamp(not_before_ms - this.#start_wall_ms, delay_ms);
    return not_before_ms === 0 || rest_ms === 0 ? undefined : this.#start_now_ms + rest_ms;
  }
}

const clamp = (rest_ms: number, max_ms: number): number => Math.min(Math.max(0, rest_ms), max_ms);
