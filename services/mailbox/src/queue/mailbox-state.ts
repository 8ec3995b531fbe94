/**
 * The messages of all topics, in RAM. Synchronous: no I/O, no clock, no events.
 *
 * Contract: each method is one transition of `states.ts`; the counts of the topic agree with it when the method returns, and
 * `sent = acked + ready + delayed + leased + dead + gone` is kept by each one. A call that does not fit the state of its message is an
 * error of the caller and throws. `due_ms` is a time of the monotonic clock, `sent_ms` and `dead_ms` of the wall clock.
 * Bound: 62 bytes for each message (see `message-table.ts`), 28 more with a key. Each call is O(log n); calls with `max` are O(max) beside.
 *
 *     const slot = state.add({ topic, seq, place, sent_ms, due_ms: undefined, key: undefined, isMoved: false });
 *     for (const slot of state.peek(topic, 16)) state.lease(slot, { delivery, attempts, nonce, due_ms });
 *     state.beginSettle(slot); // append and sync
 *     state.acked(slot);
 */
import type { Position } from '@ron/log';
import type { DeadReason } from '@ron/proto';
import type { MessagePlace } from '../store/records.ts';
import { KeyQueues } from './key-queues.ts';
import { FLAG, MessageTable, reasonBits } from './message-table.ts';
import { SegmentUse } from './segment-use.ts';
import { SlotHeap } from './slots/slot-heap.ts';
import { PAGE_BITS } from './slots/slot-pages.ts';
import { NONE, type Slot, STATE, type State, type TokenParts } from './states.ts';
import { type LedgerTotals, TopicState } from './topic-state.ts';
import { TopicStates } from './topic-states.ts';

export interface NewMessage {
  readonly topic: TopicState;
  readonly seq: number;
  readonly place: MessagePlace;
  readonly sent_ms: number;
  /** Monotonic; undefined if the message is visible at once. */
  readonly due_ms: number | undefined;
  /** Messages of a key are delivered one at a time and in order. */
  readonly key: string | undefined;
  /** The send is already part of the totals: a moved message of a removed segment. */
  readonly isMoved: boolean;
}

export interface Lease {
  readonly delivery: number;
  readonly attempts: number;
  readonly nonce: number;
  /** Monotonic. */
  readonly due_ms: number;
}

export interface DeadInfo {
  readonly reason: DeadReason;
  readonly dead_ms: number;
  readonly attempts: number;
  /** The `settled` record that holds the last error. */
  readonly at: Position;
}

/** A slot, or why the token is refused. */
export type TokenCheck = Slot | 'stale' | 'unknown';

/** A message as read from the table. */
export interface MessageView {
  readonly seq: number;
  readonly topic: TopicState;
  readonly place: MessagePlace;
  readonly state: State;
  readonly isSettling: boolean;
  /** 0 for delivery and nonce if it was never delivered, and for dead letters. */
  readonly delivery: number;
  readonly attempts: number;
  readonly nonce: number;
  /** When it was sent (Unix ms, rounded up to a second). */
  readonly sent_ms: number;
  /** Delayed and leased messages only; monotonic. */
  readonly due_ms: number | undefined;
  /** Dead letters only. */
  readonly dead: Pick<DeadInfo, 'reason' | 'dead_ms' | 'at'> | undefined;
}

export class MailboxState {
  /** No message has a higher sequence number. */
  last_seq = 0;

  readonly #table: MessageTable;
  readonly #due: SlotHeap;
  readonly #keys: KeyQueues;
  readonly #segments = new SegmentUse();
  readonly #topics = new TopicStates({
    seqOf: (slot) => this.#table.seqOf(slot),
    isVisible: (slot) => isVisible(this.#table.wordOf(slot)),
  });
  /** The place of `finishLoad`; undefined once it is done. */
  #load: { topic: number; after: number } | undefined = { topic: 0, after: 0 };

  /** `page_bits`: log2 of the rows of a page; small ones make a state cheap to create. */
  constructor(page_bits = PAGE_BITS) {
    this.#table = new MessageTable(page_bits);
    this.#due = new SlotHeap(this.#table);
    this.#keys = new KeyQueues(this.#table, page_bits);
  }

  // --- topics
  topic(name: string): TopicState | undefined {
    return this.#topics.find(name);
  }

  /** The existing one or a new one; undefined if there are 256. */
  createTopic(name: string): TopicState | undefined {
    return this.#topics.create(name);
  }

  /** Forgets a topic whose first send failed. */
  closeTopic(topic: TopicState): void {
    this.#topics.remove(topic);
  }

  /** In the order of their creation. */
  topics(): readonly TopicState[] {
    return this.#topics.all;
  }

  /** Sets the totals of a topic from a `base` record (only the first one of a replay). */
  restoreTotals(topic: TopicState, { sent, acked, gone }: LedgerTotals): void {
    topic.sent = sent;
    topic.acked = acked;
    topic.gone = gone;
  }

  // --- reading
  /** The slot of a message or dead letter; `NONE` if it is gone. */
  find(seq: number): Slot {
    return this.#table.find(seq);
  }

  /** The slot of a dead letter that is not settling; `NONE` otherwise. */
  findDead(seq: number): Slot {
    const slot = this.#table.find(seq);
    return slot !== NONE && stateIn(this.#table.wordOf(slot)) === STATE.dead && !this.isSettling(slot) ? slot : NONE;
  }

  view(slot: Slot): MessageView {
    const table = this.#table;
    const state = table.stateOf(slot);
    const isDead = state === STATE.dead;
    const lease = table.leaseOf(slot);
    return {
      seq: table.seqOf(slot),
      topic: this.topicOf(slot),
      place: table.placeOf(slot),
      state,
      isSettling: this.isSettling(slot),
      delivery: isDead ? 0 : lease.delivery,
      attempts: lease.attempts,
      nonce: isDead ? 0 : lease.nonce,
      sent_ms: table.sentMs(slot),
      due_ms: isTimed(state) ? table.dueMs(slot) : undefined,
      dead: isDead
        ? { reason: table.deadReasonOf(slot), dead_ms: table.dueMs(slot), at: table.deadRecordOf(slot) }
        : undefined,
    };
  }

  seqOf(slot: Slot): number {
    return this.#table.seqOf(slot);
  }

  stateOf(slot: Slot): State {
    return this.#table.stateOf(slot);
  }

  topicOf(slot: Slot): TopicState {
    return this.#topics.at(this.#table.topicOf(slot));
  }

  payloadBytes(slot: Slot): number {
    return this.#table.payloadBytes(slot);
  }

  /** When it was sent (Unix ms, rounded up to a second). */
  sentMs(slot: Slot): number {
    return this.#table.sentMs(slot);
  }

  isSettling(slot: Slot): boolean {
    return (this.#table.wordOf(slot) & FLAG.settling) !== 0;
  }

  /** The slot if the token is for the latest delivery of a waiting message (it may be settling). [mailbox I-5] */
  check(topic: TopicState, token: TokenParts): TokenCheck {
    if (!(token.seq >= 1 && token.seq <= this.last_seq && token.delivery >= 1)) return 'unknown';
    const slot = this.#table.find(token.seq);
    if (slot === NONE) return 'stale';
    if (this.#table.topicOf(slot) !== topic.index) return 'unknown';
    if (this.#table.stateOf(slot) === STATE.dead) return 'stale';
    const { delivery, nonce } = this.#table.leaseOf(slot);
    return delivery === token.delivery && nonce === token.nonce ? slot : 'stale';
  }

  /** Up to `max` visible messages from the front, without a change. [mailbox I-6] */
  peek(topic: TopicState, max: number): Slot[] {
    return topic.waiting_order.visible(max);
  }

  /** The waiting message with the lowest seq, settling ones too; `NONE` if none waits. */
  oldest(topic: TopicState): Slot {
    return topic.waiting_order.first();
  }

  /** Up to `max` waiting messages with seq > `after`, by seq. For max_age: stop at the first one that is young. */
  waitingAfter(topic: TopicState, after: number, max: number): Slot[] {
    return topic.waiting_order.after(after, max);
  }

  /** Up to `max` dead letters with seq > `after`, by seq. */
  deadAfter(topic: TopicState, after: number, max: number): Slot[] {
    return topic.dead_order.after(after, max);
  }

  // --- transitions
  /** Adds a message as ready or delayed. */
  add({ topic, seq, place, sent_ms, due_ms, key, isMoved }: NewMessage): Slot {
    if (seq <= this.last_seq && this.#table.find(seq) !== NONE) throw new Error(`message ${seq} exists`);
    const slot = this.#table.add({ seq, topic: topic.index, place, sent_ms });
    topic.waiting_order.add(slot);
    this.#segments.add(place);
    if (seq > this.last_seq) this.last_seq = seq;
    if (!isMoved) topic.sent += 1;
    if (due_ms !== undefined) this.#table.setDue(slot, due_ms);
    const state = due_ms === undefined ? STATE.ready : STATE.delayed;
    if (key === undefined) this.#become(slot, state);
    else this.#addKeyed(slot, state, key);
    return slot;
  }

  /** A receiver gets the message, or a replay reports so. From any waiting state, not settling. [mailbox I-3] */
  lease(slot: Slot, lease: Lease): void {
    this.#expect(slot, isWaiting, 'lease');
    this.#table.setLease(slot, lease);
    this.#table.setDue(slot, lease.due_ms);
    this.#become(slot, STATE.leased | this.#flags(slot));
  }

  /** The latest delivery is leased until `due_ms`, even if its lease has ended. */
  extend(slot: Slot, due_ms: number): void {
    this.#expect(slot, isWaiting, 'extend');
    this.#table.setDue(slot, due_ms);
    this.#become(slot, STATE.leased | this.#flags(slot));
  }

  /** Ends a lease or a delay: ready now (undefined), or delayed until then. `attempts`: default unchanged. */
  release(slot: Slot, due_ms: number | undefined, attempts?: number): void {
    this.#expect(slot, isWaiting, 'release');
    if (attempts !== undefined) this.#table.setLease(slot, { ...this.#table.leaseOf(slot), attempts });
    if (due_ms !== undefined) this.#table.setDue(slot, due_ms);
    this.#become(slot, (due_ms === undefined ? STATE.ready : STATE.delayed) | this.#flags(slot));
  }

  /** From here to `acked`, `dead`, `removed` or `undoSettle`, no receiver and no timer gets the message. */
  beginSettle(slot: Slot): void {
    this.#expect(slot, (word) => (word & FLAG.settling) === 0, 'beginSettle');
    this.#become(slot, this.#table.wordOf(slot) | FLAG.settling);
  }

  /** The settlement failed: the message is in the state that it had. A lease may be due at once. */
  undoSettle(slot: Slot): void {
    this.#expect(slot, (word) => (word & FLAG.settling) !== 0, 'undoSettle');
    this.#become(slot, this.#table.wordOf(slot) & ~FLAG.settling);
  }

  /** A waiting message is gone. [mailbox I-4] */
  acked(slot: Slot): void {
    this.#expect(slot, (word) => stateIn(word) !== STATE.dead, 'acked');
    this.topicOf(slot).acked += 1;
    this.#leaveOrder(slot);
    this.#free(slot);
  }

  /** A waiting message becomes a dead letter. Of a dead letter: its record has moved, and may have been found damaged. */
  dead(slot: Slot, { reason, dead_ms, attempts, at }: DeadInfo): void {
    let settling = 0;
    if (this.#table.stateOf(slot) === STATE.dead) settling = this.#table.wordOf(slot) & FLAG.settling;
    else {
      this.#leaveOrder(slot);
      this.topicOf(slot).dead_order.add(slot);
    }
    this.#become(slot, STATE.dead | settling | reasonBits(reason));
    this.#table.setDue(slot, dead_ms);
    this.#table.setDeadRecord(slot, attempts, at);
  }

  /** A dead letter is gone. */
  removed(slot: Slot): void {
    this.#expect(slot, (word) => stateIn(word) === STATE.dead, 'removed');
    const topic = this.topicOf(slot);
    topic.gone += 1;
    topic.dead_order.remove(slot);
    this.#free(slot);
  }

  /** Compaction has written the message again; without its payload if that is damaged. */
  move(slot: Slot, place: MessagePlace): void {
    const topic = this.topicOf(slot);
    const state = this.#table.stateOf(slot);
    topic.count(state, -1, this.#table.payloadBytes(slot));
    topic.count(state, 1, place.payload_bytes);
    this.#segments.remove(this.#table.placeOf(slot));
    this.#table.setPlace(slot, place);
    this.#segments.add(place);
  }

  // --- due times
  /** The due time of the next delayed or leased message; undefined if there is none. */
  nextDueMs(): number | undefined {
    const slot = this.#due.first();
    return slot === NONE ? undefined : this.#table.dueMs(slot);
  }

  /**
   * A delayed or leased message whose time has come, the earliest first; `NONE` if there is none. The caller must end that state
   * (`release`, `lease` or `beginSettle`) before the next call.
   */
  due(now_ms: number): Slot {
    const slot = this.#due.first();
    return slot === NONE || this.#table.dueMs(slot) > now_ms ? NONE : slot;
  }

  // --- start
  /** Links up to `max` messages of keys after a replay; true once all are. Until then, messages with a key are not visible. */
  finishLoad(max: number): boolean {
    let left = max;
    while (this.#load !== undefined && left > 0) {
      const topic = this.#topics.all[this.#load.topic];
      if (topic === undefined) this.#load = undefined;
      else left -= this.#loadKeys(topic, this.#load, left);
    }
    return this.#load === undefined;
  }

  // --- segments
  /** Bytes of the message records of live messages and dead letters in the segment. */
  liveBytes(segment: number): number {
    return this.#segments.bytesOf(segment);
  }

  /** The same for all segments. */
  get live_bytes(): number {
    return this.#segments.total_bytes;
  }

  /** The only place where a message changes state or flags: keeps the counts, the due heap and the visible messages in agreement. */
  #become(slot: Slot, word: number): void {
    const table = this.#table;
    const topic = this.topicOf(slot);
    const before = table.wordOf(slot);
    const bytes = table.payloadBytes(slot);
    topic.count(stateIn(before), -1, bytes);
    topic.count(stateIn(word), 1, bytes);
    if (isVisible(before) && !isVisible(word)) topic.waiting_order.hide(slot);
    table.setWord(slot, word);
    if (isVisible(word) && !isVisible(before)) topic.waiting_order.show(slot);
    const isScheduled = isTimed(stateIn(word)) && (word & FLAG.settling) === 0;
    if (!this.#due.has(slot)) {
      if (isScheduled) this.#due.add(slot);
    } else if (isScheduled) this.#due.changed(slot);
    else this.#due.remove(slot);
  }

  #flags(slot: Slot): number {
    return this.#table.wordOf(slot) & (FLAG.keyed | FLAG.behind);
  }

  #addKeyed(slot: Slot, state: State, key: string): void {
    this.#keys.set(slot, key);
    this.#become(slot, state | FLAG.keyed | FLAG.behind);
    if (this.#load === undefined) this.#link(slot);
  }

  #loadKeys(topic: TopicState, load: { topic: number; after: number }, max: number): number {
    const slots = topic.waiting_order.after(load.after, max);
    for (const slot of slots)
      if ((this.#table.wordOf(slot) & FLAG.keyed) !== 0 && !this.#keys.isLinked(slot)) this.#link(slot);
    const last = slots.at(-1);
    if (slots.length < max || last === undefined) this.#load = { topic: load.topic + 1, after: 0 };
    else load.after = this.#table.seqOf(last);
    return slots.length + 1;
  }

  #link(slot: Slot): void {
    if (this.#keys.link(slot)) this.#become(slot, this.#table.wordOf(slot) & ~FLAG.behind);
  }

  /** The message does not wait any more: its key goes on with the next one. */
  #leaveOrder(slot: Slot): void {
    const word = this.#table.wordOf(slot);
    this.#become(slot, word | FLAG.settling);
    this.topicOf(slot).waiting_order.remove(slot);
    if ((word & FLAG.keyed) === 0) return;
    const head = this.#keys.remove(slot);
    if (head !== NONE) this.#become(head, this.#table.wordOf(head) & ~FLAG.behind);
  }

  #free(slot: Slot): void {
    this.#segments.remove(this.#table.placeOf(slot));
    this.#become(slot, STATE.free);
    this.#table.remove(slot);
  }

  #expect(slot: Slot, holds: (word: number) => boolean, transition: string): void {
    const word = this.#table.wordOf(slot);
    if (!holds(word)) throw new Error(`no ${transition} of message ${this.#table.seqOf(slot)} in state ${word}`);
  }
}

const STATE_MASK = 7;

function stateIn(word: number): State {
  return (word & STATE_MASK) as State;
}

function isVisible(word: number): boolean {
  return stateIn(word) === STATE.ready && (word & (FLAG.settling | FLAG.behind)) === 0;
}

function isTimed(state: State): boolean {
  return state === STATE.delayed || state === STATE.leased;
}

/** Waits and is not settling. */
function isWaiting(word: number): boolean {
  return stateIn(word) !== STATE.dead && (word & FLAG.settling) === 0;
}
