/**
 * The counts of one topic.
 *
 * Contract: `sent = acked + ready + delayed + leased + dead + gone` holds between any two calls, unless records are missing
 * (see `ledgerGap`). `MailboxState` is the only writer of the counts; callers read them.
 */
import type { TopicLedger } from '@ron/proto';

/** The limits that `reserve` checks. */
export interface TopicLimits {
  readonly max_messages: number;
  readonly max_bytes: number;
}

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
  /** Ready messages that a receiver may take now: not behind their key, and not settling. */
  visible = 0;

  constructor(name: string, index: number) {
    this.name = name;
    this.index = index;
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

  ledger(): TopicLedger {
    const { sent, acked, ready, delayed, leased, dead, gone } = this;
    return { sent, acked, ready, delayed, leased, dead, gone };
  }

  /** Messages that were sent and are neither settled nor held; 0 if the ledger holds. [mailbox I-8] */
  ledgerGap(): number {
    return this.sent - this.acked - this.waiting - this.dead - this.gone;
  }
}
