/**
 * A history: the calls of all clients of a mailbox, with their answers and times.
 *
 * Times are Unix ms with a fraction, of one clock that does not jump. A call without an answer has `ended_ms` Infinity and no
 * result: it may have happened or not. A message is identified by its sequence number, and an unanswered send by its body,
 * so each message has a body of its own; repeated sends of one idempotency key have the same body.
 */
import type { TokenResult, TopicLedger } from '@ron/proto';

interface Call {
  readonly topic: string;
  readonly began_ms: number;
  readonly ended_ms: number;
}

/** One message of a send. The messages of a batch have the same times. */
export interface SendCall extends Call {
  readonly kind: 'send';
  readonly body: string;
  readonly key?: string | undefined;
  readonly idempotency_key?: string | undefined;
  readonly delay_ms?: number | undefined;
  /** Undefined: no answer. */
  readonly result:
    | { readonly seq: number; readonly id: string; readonly duplicate: boolean }
    | { readonly conflict: string | undefined }
    | 'refused'
    | undefined;
}

export interface Delivered {
  readonly seq: number;
  readonly id: string;
  readonly delivery: number;
  readonly attempts: number;
  readonly key?: string | undefined;
  /** The hash of the received payload, and the hash that the answer states. */
  readonly body: string;
  readonly stated: string;
  readonly replay_of?: string | undefined;
}

export interface ReceiveCall extends Call {
  readonly kind: 'receive';
  readonly visibility_ms: number;
  /** Undefined: no answer, so unknown messages may be leased until their visibility ends. */
  readonly result: readonly Delivered[] | undefined;
  /** When the connection of a call without an answer ended because the process was dead. Default: it may happen later. */
  readonly broke_ms?: number | undefined;
}

/** One token of an ack, nack or extend. */
export interface SettleCall extends Call {
  readonly kind: 'ack' | 'nack' | 'extend';
  readonly seq: number;
  readonly delivery: number;
  /** Of a nack. Default: a random backoff. */
  readonly delay_ms?: number | undefined;
  readonly dead?: boolean | undefined;
  /** Of an extend. */
  readonly visibility_ms?: number | undefined;
  readonly result: TokenResult | undefined;
}

export type HistoryCall = SendCall | ReceiveCall | SettleCall;

/** A topic after the last call. */
export interface FinalTopic {
  readonly topic: string;
  readonly ledger: TopicLedger;
  readonly dead: readonly { readonly seq: number; readonly dead_ms: number; readonly attempts: number }[];
  /** Dead letters that were replayed or deleted. */
  readonly removed?: readonly number[];
}

export interface History {
  readonly calls: readonly HistoryCall[];
  readonly topics: readonly FinalTopic[];
  readonly max_deliveries: number;
  /** False if leases may be lost: after a power cut, not after a killed process. */
  readonly leases_survive: boolean;
}

/** A clock for histories: Unix ms that do not jump. */
export const clock_ms = (): number => performance.timeOrigin + performance.now();

export class Recorder {
  readonly calls: HistoryCall[] = [];
  readonly #clock_ms: () => number;

  /** The unit of another clock need not be ms. */
  constructor(now: () => number = clock_ms) {
    this.#clock_ms = now;
  }

  /** Adds calls with the times of `run`, even if it fails: then without results. */
  async around<T>(run: () => Promise<T>, callsOf: (answer: T | undefined, times: Times) => HistoryCall[]): Promise<T> {
    const began_ms = this.#clock_ms();
    try {
      const answer = await run();
      this.calls.push(...callsOf(answer, { began_ms, ended_ms: this.#clock_ms() }));
      return answer;
    } catch (error) {
      this.calls.push(...callsOf(undefined, { began_ms, ended_ms: Infinity, broke_ms: this.#clock_ms() }));
      throw error;
    }
  }
}

export interface Times {
  readonly began_ms: number;
  readonly ended_ms: number;
  readonly broke_ms?: number;
}
