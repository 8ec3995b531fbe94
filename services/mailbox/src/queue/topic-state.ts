/**
 * The counts of one topic.
 *
 * Contract: `sent = acked + ready + delayed + leased + dead + gone` holds between any two calls, unless records are missing
 * (see `ledgerGap`). `MailboxState` is the only writer of the counts; callers read them.
 */
import type { TopicLedger, TopicPolicy } from '@ron/proto';
import { type OrderRows, SlotOrder } from './slots/slot-order.ts';
import { STATE, type State } from './states.ts';

/** The limits that `reserve` checks. */
type TopicLimits = Pick<TopicPolicy, 'max_messages' | 'max_bytes'>;

/** The totals that no message in the table shows. */
export interface LedgerTotals {
  readonly sent: number;
  readonly acked: number;
  readonly gone: number;
}

export class TopicState {
  readonly name: string;
  /** 0..255; the number of the topic in the message table. */
  readonly index: number;

  sent = 0;
  acked = 0;
  gone = 0;
  ready = 0;
  delayed = 0;
  leased = 0;
  dead = 0;
  /** Payload bytes of waiting messages, and of dead letters. */
  bytes = 0;
  dead_bytes = 0;
  /** Sends that are in flight. */
  reserved = 0;
  reserved_bytes = 0;
  /** Waiting messages, and dead letters. */
  readonly waiting_order: SlotOrder;
  readonly dead_order: SlotOrder;

  constructor(name: string, index: number, rows: OrderRows) {
    this.name = name;
    this.index = index;
    this.waiting_order = new SlotOrder(rows);
    this.dead_order = new SlotOrder(rows);
  }

  /** Ready messages that a receiver may take now: not behind their key, and not settling. */
  get visible(): number {
    return this.waiting_order.visible_size;
  }

  get waiting(): number {
    return this.ready + this.delayed + this.leased;
  }

  /** Takes room for a message until `unreserve`; false if the topic is full. [mailbox I-11] */
  reserve(payload_bytes: number, limits: TopicLimits): boolean {
    if (this.waiting + this.reserved >= limits.max_messages) return false;
    if (this.bytes + this.reserved_bytes + payload_bytes > limits.max_bytes) return false;
    this.reserved += 1;
    this.reserved_bytes += payload_bytes;
    return true;
  }

  /** Ends a reservation: the message was added in the same synchronous step, or its send failed. */
  unreserve(payload_bytes: number): void {
    this.reserved -= 1;
    this.reserved_bytes -= payload_bytes;
  }

  /** Counts messages in (1) or out (-1) of a state. */
  count(state: State, by: 1 | -1, payload_bytes: number): void {
    if (state === STATE.ready) this.ready += by;
    else if (state === STATE.delayed) this.delayed += by;
    else if (state === STATE.leased) this.leased += by;
    else if (state === STATE.dead) this.dead += by;
    else return;
    if (state === STATE.dead) this.dead_bytes += by * payload_bytes;
    else this.bytes += by * payload_bytes;
  }

  ledger(): TopicLedger {
    const { sent, acked, ready, delayed, leased, dead, gone } = this;
    return { sent, acked, ready, delayed, leased, dead, gone };
  }

  /** Messages that were sent and are neither settled nor held; 0 if the ledger balances. [mailbox I-8] */
  ledgerGap(): number {
    return this.sent - this.acked - this.waiting - this.dead - this.gone;
  }
}
