/**
 * The messages of all topics, in RAM. Synchronous: no I/O, no clock, no events.
 *
 * Contract: each method is one transition of `states.ts`; the counts of the topic agree with it when the method returns.
 * `*_due_ms` are times of the monotonic clock, `sent_ms` and `dead_ms` of the wall clock; the caller reads both clocks.
 */
import type { Position } from '@ron/log';
import type { MessagePlace } from '../store/records.ts';
import { type Slot, type TokenParts } from './states.ts';
import { type LedgerTotals, TopicState } from './topic-state.ts';

const todo = (): never => {
  throw new Error('not built yet');
};

export interface NewMessage {
  readonly topic: TopicState;
  readonly seq: number;
  readonly place: MessagePlace;
  readonly sent_ms: number;
  /** Monotonic; undefined if the message is visible at once. */
  readonly due_ms: number | undefined;
  /** From `keyHash`; undefined if the message has no key. */
  readonly key_hash: bigint | undefined;
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
  readonly dead_ms: number;
  readonly attempts: number;
  /** The `settled` record that holds reason and error. */
  readonly at: Position;
}

/** A slot, or why the token is refused. */
export type TokenCheck = Slot | 'stale' | 'unknown';

/** A message as read from the table. */
export interface MessageView {
  readonly seq: number;
  readonly topic: TopicState;
  readonly place: MessagePlace;
  readonly state: number;
  readonly isSettling: boolean;
  readonly delivery: number;
  readonly attempts: number;
  readonly nonce: number;
  /** The second in which it was sent (Unix ms, rounded down). */
  readonly sent_ms: number;
  /** Dead letters only. */
  readonly dead: { readonly dead_ms: number; readonly at: Position } | undefined;
}

export class MailboxState {
  /** The highest sequence number that was ever given to a record. */
  last_seq = 0;

  // --- topics
  topic(_name: string): TopicState | undefined {
    return todo();
  }
  /** The existing one or a new one; undefined if there are 256. */
  createTopic(_name: string): TopicState | undefined {
    return todo();
  }
  topics(): readonly TopicState[] {
    return todo();
  }
  /** Sets the totals of a topic from a `base` record (only the first one of a replay). */
  restoreTotals(_topic: TopicState, _totals: LedgerTotals): void {
    todo();
  }

  // --- reading
  /** The slot of a message or dead letter; `NONE` if it is gone. */
  find(_seq: number): Slot {
    return todo();
  }
  view(_slot: Slot): MessageView {
    return todo();
  }
  payloadBytes(_slot: Slot): number {
    return todo();
  }
  isSettling(_slot: Slot): boolean {
    return todo();
  }
  /** The live message or dead letter `seq` lies exactly there. For compaction. */
  isAt(_seq: number, _at: Position): boolean {
    return todo();
  }
  /** The slot if the token is for the latest delivery of a waiting message (it may be settling). [mailbox I-5] */
  check(_topic: TopicState, _token: TokenParts): TokenCheck {
    return todo();
  }
  /** The next message for a receiver; `NONE` if none is visible. It stays visible until `lease`. [mailbox I-6] */
  firstVisible(_topic: TopicState): Slot {
    return todo();
  }
  /** Up to `max` visible messages from the front, without a change. */
  peek(_topic: TopicState, _max: number): Slot[] {
    return todo();
  }
  /** The waiting message with the lowest seq, settling ones too; `NONE` if none waits. */
  oldest(_topic: TopicState): Slot {
    return todo();
  }
  /** Up to `max` waiting messages with seq > `after`, by seq. For max_age: stop at the first one that is young. */
  waitingAfter(_topic: TopicState, _after: number, _max: number): Slot[] {
    return todo();
  }
  /** Up to `max` dead letters with seq > `after`, by seq. */
  deadAfter(_topic: TopicState, _after: number, _max: number): Slot[] {
    return todo();
  }

  // --- transitions
  /** Adds a message as ready or delayed. */
  add(_message: NewMessage): Slot {
    return todo();
  }
  /** A receiver gets the message, or a replay reports so. From any waiting state, not settling. [mailbox I-3] */
  lease(_slot: Slot, _lease: Lease): void {
    todo();
  }
  /** The latest delivery is leased until `due_ms`, even if its lease has ended. */
  extend(_slot: Slot, _due_ms: number): void {
    todo();
  }
  /** Ends a lease or a delay: ready now (undefined), or delayed until then. `attempts`: default unchanged. */
  release(_slot: Slot, _due_ms: number | undefined, _attempts?: number): void {
    todo();
  }
  /** From here to `acked`, `dead`, `removed` or `undoSettle`, no receiver and no timer gets the message. */
  beginSettle(_slot: Slot): void {
    todo();
  }
  undoSettle(_slot: Slot): void {
    todo();
  }
  acked(_slot: Slot): void {
    todo();
  }
  /** A waiting message becomes a dead letter. Of a dead letter: its record has moved. */
  dead(_slot: Slot, _info: DeadInfo): void {
    todo();
  }
  /** A dead letter is gone. */
  removed(_slot: Slot): void {
    todo();
  }
  /** A replay found the settlement of a message of a removed segment: only the totals change. */
  countUnheld(_topic: TopicState, _outcome: 'acked' | 'removed'): void {
    todo();
  }
  /** Compaction has written the message again. */
  move(_slot: Slot, _place: MessagePlace): void {
    todo();
  }

  // --- due times
  /** The due time of the next delayed or leased message; undefined if there is none. */
  nextDueMs(_now_ms: number): number | undefined {
    return todo();
  }
  /**
   * A delayed or leased message whose time has come; `NONE` if there is none. The caller must end that state (`release`,
   * `lease` or `beginSettle`) before the next call.
   */
  due(_now_ms: number): Slot {
    return todo();
  }

  // --- start
  /** Links up to `max` keyed messages after a replay; true once all are. Until then, keyed messages are not visible. */
  finishLoad(_max: number): boolean {
    return todo();
  }

  // --- segments
  /** Bytes (payload and meta) of live messages and dead letters whose message record lies in the segment. */
  liveBytes(_segment: number): number {
    return todo();
  }
  liveMessages(_segment: number): number {
    return todo();
  }
  /** The same for all segments. */
  get live_bytes(): number {
    return todo();
  }
  get live_messages(): number {
    return todo();
  }
}

/** The order of a key is by this number: equal hashes of different keys only delay each other. */
export function keyHash(_topic: string, _key: string): bigint {
  return todo();
}
