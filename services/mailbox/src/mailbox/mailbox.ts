/**
 * A mailbox: the messages of all topics, their log and the operations on them, without HTTP.
 *
 *     send ----------------> Sends ----.                   .--> StateTarget --> MailboxState
 *     ack, nack, extend ---> Settles --+--> MailboxLog ----|    in the step of the sync   |
 *     receive --> Receivers --> Deliveries                 '--> answer                    |
 *                     ^------------- messages that became visible <-----------------------'
 *     lease clock, retention, compactor: tasks of the service
 *
 * Contract: `operations.ts`. `close` ends waiting receivers, commits waiting appends and closes the log.
 */
import { RonError } from '@ron/kernel';
import {
  MAILBOX_LIMITS,
  type DeadPageDto,
  type DeadSelection,
  type DeletedDto,
  type NackRequest,
  type OutgoingMessage,
  type PeekedMessage,
  type ReceiveRequest,
  type ReplayedDto,
  type SendOptions,
  type SendResult,
  type TokenResult,
  type TopicDto,
  type TopicPolicy,
} from '@ron/proto';
import { openMailboxParts, type MailboxInit, type MailboxParts } from './open-mailbox.ts';
import { completed, type Delivery, type MailboxOperations } from './operations.ts';
import { messageDto } from './receive/message-dto.ts';
import { topicDto } from './topics/topic-dto.ts';
import { TOO_MANY_TOPICS, type Topic } from './topics/topics.ts';

export type { MailboxInit } from './open-mailbox.ts';

const NOTHING: Delivery = { messages: [], release: () => undefined };

export class Mailbox implements MailboxOperations, AsyncDisposable {
  readonly parts: MailboxParts;

  private constructor(parts: MailboxParts) {
    this.parts = parts;
  }

  /** Replays the log. Rejects with `not_ready` if another process has the directory open. */
  static async open(init: MailboxInit): Promise<Mailbox> {
    return new Mailbox(await openMailboxParts(init));
  }

  send(messages: readonly OutgoingMessage[], signal: AbortSignal, how?: SendOptions): Promise<readonly SendResult[]> {
    return this.parts.sends.send(messages, signal, how);
  }

  async receive(topic: string, request: ReceiveRequest, signal: AbortSignal): Promise<Delivery> {
    signal.throwIfAborted();
    const { deliveries } = this.parts;
    const taken = deliveries.take(topic, completed(request));
    return taken === undefined ? NOTHING : await deliveries.deliver(taken, signal);
  }

  async awaitMessage(
    topic: string,
    request: ReceiveRequest,
    signal: AbortSignal,
    draining: AbortSignal,
  ): Promise<Delivery> {
    const { receivers, deliveries } = this.parts;
    const wanted = completed(request);
    const taken = await receivers.wait(topic, wanted, { wait_ms: wanted.wait_ms, signal, draining });
    return taken === undefined ? NOTHING : await deliveries.deliver(taken, signal);
  }

  ack(topic: string, tokens: readonly string[], signal: AbortSignal): Promise<readonly TokenResult[]> {
    return this.parts.settles.ack(topic, tokens, signal);
  }

  nack(
    topic: string,
    tokens: readonly string[],
    how: NackRequest,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]> {
    return this.parts.settles.nack(topic, tokens, how, signal);
  }

  extend(
    topic: string,
    tokens: readonly string[],
    visibility_ms: number,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]> {
    return this.parts.settles.extend(topic, tokens, visibility_ms, signal);
  }

  topics(): readonly TopicDto[] {
    return this.parts.topics.all().map((topic) => topicDto(this.parts, topic));
  }

  topic(name: string): TopicDto {
    return topicDto(this.parts, this.#topic(name));
  }

  async setPolicy(name: string, policy: Partial<TopicPolicy>, signal: AbortSignal): Promise<TopicDto> {
    const { topics, log } = this.parts;
    const topic = topics.forSend(name, true);
    if (topic === undefined) throw new RonError('storage_full', TOO_MANY_TOPICS);
    using _ = topics.hold(topic);
    await log.appendTopic(name, policy, signal);
    return this.topic(name);
  }

  async peek(name: string, limit: number, signal: AbortSignal): Promise<readonly PeekedMessage[]> {
    const { state, reads } = this.parts;
    const seqs = state.peek(this.#topic(name).state, limit).map((slot) => state.seqOf(slot));
    const messages: PeekedMessage[] = [];
    let bytes = 0;
    for (const seq of seqs) {
      const slot = state.find(seq);
      if (slot < 0) continue;
      bytes += state.payloadBytes(slot);
      if (messages.length > 0 && bytes > MAILBOX_LIMITS.receive_bytes_max) break;
      const view = state.view(slot);
      const read = await reads.read(seq, signal);
      if (typeof read !== 'string') messages.push(messageDto(read, view));
    }
    return messages;
  }

  async deadLetters(name: string, after: number, limit: number, signal: AbortSignal): Promise<DeadPageDto> {
    return await this.parts.dead.list(this.#topic(name), after, limit, signal);
  }

  async replayDead(name: string, which: DeadSelection, signal: AbortSignal): Promise<ReplayedDto> {
    const topic = this.#topic(name);
    const replayed = await this.parts.dead.replay(topic, which, signal);
    return { replayed, left: topic.state.dead };
  }

  async deleteDead(name: string, which: DeadSelection, signal: AbortSignal): Promise<DeletedDto> {
    const topic = this.#topic(name);
    const deleted = await this.parts.dead.delete(topic, which, signal);
    return { deleted, left: topic.state.dead };
  }

  /** Why the ledger does not balance; undefined if it does. */
  get ledgerProblem(): string | undefined {
    return this.parts.log.problem?.text;
  }

  /** Why the disk does not take messages; undefined if it does. */
  get diskProblem(): string | undefined {
    return this.parts.log.disk.problem;
  }

  async close(): Promise<void> {
    this.parts.receivers.close();
    await this.parts.background.drained();
    await this.parts.log.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #topic(name: string): Topic {
    const topic = this.parts.topics.find(name);
    if (topic === undefined) throw new RonError('not_found', `there is no topic ${name}`);
    return topic;
  }
}
