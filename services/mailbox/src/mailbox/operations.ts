/**
 * The operations of a mailbox, free of HTTP. The routes call them, and nothing else of the domain.
 *
 * Contract: the promises of `../invariants.ts`. Each call rejects with a `RonError`: `storage_full` (507), `not_ready` (503),
 * `not_found` (404: no such topic), `busy`, `timeout`, `draining`.
 */
import {
  MAILBOX_LIMITS,
  type DeadPageDto,
  type DeadSelection,
  type DeletedDto,
  type NackRequest,
  type OutgoingMessage,
  type PeekedMessage,
  type ReceivedMessage,
  type ReceiveRequest,
  type ReplayedDto,
  type SendOptions,
  type SendResult,
  type TokenResult,
  type TopicDto,
  type TopicPolicy,
} from '@ron/proto';

/** Messages that were leased for one answer. */
export interface Delivery {
  readonly messages: readonly ReceivedMessage[];
  /** The receiver left before the answer was written: the messages are ready again at once, and the delivery is not an attempt. Idempotent. */
  release(): void;
}

/** A receive with the defaults of all fields. */
export function completed(request: ReceiveRequest): Required<ReceiveRequest> {
  return {
    max: request.max ?? 1,
    visibility_ms: request.visibility_ms ?? MAILBOX_LIMITS.visibility_ms_default,
    wait_ms: request.wait_ms ?? 0,
    bytes_max: request.bytes_max ?? MAILBOX_LIMITS.receive_bytes_default,
  };
}

export interface MailboxOperations {
  /** Stores each message or refuses it; an answer for each, in order. Resolves after one sync. */
  send(messages: readonly OutgoingMessage[], signal: AbortSignal, how?: SendOptions): Promise<readonly SendResult[]>;
  /** Leases visible messages; an empty delivery if there are none. */
  receive(topic: string, request: ReceiveRequest, signal: AbortSignal): Promise<Delivery>;
  /** As `receive`, but waits for a message, in the order of the calls; empty when `wait_ms` is over or a drain begins. */
  awaitMessage(topic: string, request: ReceiveRequest, signal: AbortSignal, draining: AbortSignal): Promise<Delivery>;
  ack(topic: string, tokens: readonly string[], signal: AbortSignal): Promise<readonly TokenResult[]>;
  nack(
    topic: string,
    tokens: readonly string[],
    how: NackRequest,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]>;
  extend(
    topic: string,
    tokens: readonly string[],
    visibility_ms: number,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]>;
  topics(): readonly TopicDto[];
  topic(name: string): TopicDto;
  setPolicy(topic: string, policy: Partial<TopicPolicy>, signal: AbortSignal): Promise<TopicDto>;
  /** Visible messages from the front, without a lease. */
  peek(topic: string, limit: number, signal: AbortSignal): Promise<readonly PeekedMessage[]>;
  deadLetters(topic: string, after: number, limit: number, signal: AbortSignal): Promise<DeadPageDto>;
  /** Sends dead letters again, as new messages. */
  replayDead(topic: string, which: DeadSelection, signal: AbortSignal): Promise<ReplayedDto>;
  deleteDead(topic: string, which: DeadSelection, signal: AbortSignal): Promise<DeletedDto>;
}
