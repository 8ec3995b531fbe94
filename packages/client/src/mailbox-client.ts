/**
 * A client of mailbox: sends, receives and acknowledges messages, and administers topics.
 *
 * Contract: payloads travel framed, without base64. Each received payload has been compared with its `b3`, and each stored
 * message with the `b3` that mailbox states; a difference is `integrity`. Reads, policies and the start of a proof are
 * retried; a send, receive, ack, nack, extend, replay or deletion is sent once, because it may have taken effect before its
 * answer was lost. After such a failure, send again with the same idempotency keys.
 * Bound: `MAILBOX_LIMITS` of messages and bytes for each call; other answers as in JsonCalls.
 * Cancellation: by the signal of each call and of the client. Messages of a receive that is canceled before it was answered
 * are ready again at once.
 *
 *     const mailbox = new MailboxClient({ url: 'http://127.0.0.1:7106', capability });
 *     await mailbox.send([{ topic: 'jobs', idempotency_key: 'job-7', payload }]);
 *     for (const message of await mailbox.receive('jobs', { max: 16, wait_ms: 20_000 })) {
 *       await work(message.payload);
 *       await mailbox.ack('jobs', [message.token]);
 *     }
 */
import { POLICIES, RonError } from '@ron/kernel/core';
import {
  BATCH_MEDIA_TYPE,
  encodeBatch,
  isTopic,
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
  type Task,
  type TokenResult,
  type TopicDto,
  type TopicPolicy,
} from '@ron/proto';
import type { Answer } from './answer.ts';
import { jsonBody, JsonCalls, readJson } from './json-calls.ts';
import {
  readPeeked,
  readReceived,
  requireDeadPage,
  requireDeleted,
  requireReplayed,
  requireSendResults,
  requireTask,
  requireTokenResults,
  requireTopic,
  requireTopics,
} from './mailbox-answers.ts';
import { queryOf } from './query.ts';
import type { CallOptions } from './storage-client.ts';
import { Transport, type CallInit, type TransportInit } from './transport.ts';

const PREFIX = 'v1/mailbox/';

export class MailboxClient {
  readonly #transport: Transport;
  readonly #calls: JsonCalls;
  readonly #tasks: JsonCalls;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
    this.#calls = new JsonCalls('v1/', init);
    this.#tasks = new JsonCalls('admin/', init);
  }

  get url(): string {
    return this.#transport.base.href;
  }

  /** Stores messages. A result for each, in order; a refused message does not stop the others, unless the call is ordered. */
  async send(
    messages: readonly OutgoingMessage[],
    init: CallOptions & SendOptions = {},
  ): Promise<readonly SendResult[]> {
    const body = joined(encodeBatch(messages.map(({ payload, ...head }) => ({ head, payload }))));
    const headers = { 'Content-Type': BATCH_MEDIA_TYPE };
    const path = `send${queryOf({ ordered: init.ordered === true ? 1 : undefined })}`;
    const answer = await this.#once('send', path, { headers, body }, init, readJson);
    return requireSendResults(answer, messages);
  }

  /** Leases messages. Empty if none became visible within `wait_ms`. */
  async receive(
    topic: string,
    request: ReceiveRequest = {},
    init: CallOptions = {},
  ): Promise<readonly ReceivedMessage[]> {
    const { wait_ms = 0, bytes_max = MAILBOX_LIMITS.receive_bytes_default } = request;
    const call = { ...init, wait_ms, body_bytes: bytes_max };
    const { headers, body } = jsonBody(request);
    const framed = { headers: { ...headers, Accept: BATCH_MEDIA_TYPE }, body };
    return await this.#once('receive', `${pathOf(topic)}/receive`, framed, call, readReceived);
  }

  /** Settles messages. A result for each token, in order. */
  async ack(topic: string, tokens: readonly string[], init: CallOptions = {}): Promise<readonly TokenResult[]> {
    return await this.#settle('ack', topic, tokens, {}, init);
  }

  /** Returns messages: they are delivered again, or become dead letters. */
  async nack(
    topic: string,
    tokens: readonly string[],
    how: NackRequest = {},
    init: CallOptions = {},
  ): Promise<readonly TokenResult[]> {
    return await this.#settle('nack', topic, tokens, how, init);
  }

  /** Leases messages for `visibility_ms` from now. */
  async extend(
    topic: string,
    tokens: readonly string[],
    visibility_ms: number,
    init: CallOptions = {},
  ): Promise<readonly TokenResult[]> {
    return await this.#settle('extend', topic, tokens, { visibility_ms }, init);
  }

  /** The topics that the capability allows. */
  async topics(init: CallOptions = {}): Promise<readonly TopicDto[]> {
    return requireTopics(await this.#calls.get('topics', 'mailbox', init.signal), 'topics').topics;
  }

  async topic(name: string, init: CallOptions = {}): Promise<TopicDto> {
    return requireTopic(await this.#calls.get('topic', `mailbox/${pathOf(name)}`, init.signal), 'topic');
  }

  /** Sets the policy of a topic, which is created if it does not exist. Fields that are left out follow the configuration. */
  async setPolicy(topic: string, policy: Partial<TopicPolicy>, init: CallOptions = {}): Promise<TopicDto> {
    return requireTopic(await this.#calls.put('policy', `mailbox/${pathOf(topic)}`, policy, init.signal), 'policy');
  }

  /** Visible messages from the front, without a lease. */
  async peek(topic: string, limit?: number, init: CallOptions = {}): Promise<readonly PeekedMessage[]> {
    const path = `${PREFIX}${pathOf(topic)}/peek${queryOf({ limit })}`;
    const headers = { Accept: BATCH_MEDIA_TYPE };
    const work = async (signal: AbortSignal): Promise<readonly PeekedMessage[]> =>
      await readPeeked(await this.#transport.send('peek', path, { method: 'GET', headers, signal }), 'peek');
    return await this.#transport.call('peek', work, { signal: init.signal });
  }

  /** Dead letters in the order of their sequence numbers. */
  async deadLetters(
    topic: string,
    { after, limit }: { readonly after?: number; readonly limit?: number } = {},
    init: CallOptions = {},
  ): Promise<DeadPageDto> {
    const path = `mailbox/${pathOf(topic)}/dlq${queryOf({ after, limit })}`;
    return requireDeadPage(await this.#calls.get('dlq', path, init.signal), 'dlq');
  }

  /** Sends dead letters again, as new messages with `replay_of`. */
  async replayDead(topic: string, which: DeadSelection = {}, init: CallOptions = {}): Promise<ReplayedDto> {
    const path = `${pathOf(topic)}/dlq/replay`;
    return requireReplayed(await this.#once('replay', path, jsonBody(which), init, readJson), 'replay');
  }

  async deleteDead(topic: string, which: DeadSelection = {}, init: CallOptions = {}): Promise<DeletedDto> {
    const query = queryOf({ seqs: which.seqs?.join(','), limit: which.limit });
    const path = `${PREFIX}${pathOf(topic)}/dlq${query}`;
    const work = async (signal: AbortSignal): Promise<unknown> =>
      await readJson(await this.#transport.send('delete', path, { method: 'DELETE', signal }), 'delete');
    return requireDeleted(
      await this.#transport.call('delete', work, { signal: init.signal, policy: POLICIES.once }),
      'delete',
    );
  }

  /** Starts a check of the whole log and the ledger from disk, or returns the running one. */
  async startProve(init: CallOptions = {}): Promise<Task<'prove'>> {
    return requireTask(await this.#tasks.post('prove', 'prove', undefined, init.signal), 'prove');
  }

  async task(id: string, init: CallOptions = {}): Promise<Task<'prove'>> {
    return requireTask(await this.#tasks.get('task', `tasks/${encodeURIComponent(id)}`, init.signal), 'task');
  }

  async #settle(
    op: string,
    topic: string,
    tokens: readonly string[],
    how: object,
    init: CallOptions,
  ): Promise<readonly TokenResult[]> {
    const answer = await this.#once(op, `${pathOf(topic)}/${op}`, jsonBody({ tokens, ...how }), init, readJson);
    return requireTokenResults(answer, tokens.length, op);
  }

  /** A POST that is not retried. */
  async #once<T>(
    op: string,
    path: string,
    { headers, body }: TypedBody,
    init: CallInit,
    read: (answer: Answer, op: string) => Promise<T>,
  ): Promise<T> {
    const work = async (signal: AbortSignal): Promise<T> =>
      await read(await this.#transport.send(op, PREFIX + path, { method: 'POST', headers, body, signal }), op);
    const body_bytes = body.length + (init.body_bytes ?? 0);
    return await this.#transport.call(op, work, { ...init, body_bytes, policy: POLICIES.once });
  }
}

/** A POST body with the headers that describe it. */
interface TypedBody {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer>;
}

function pathOf(topic: string): string {
  if (isTopic(topic)) return topic;
  throw new RonError(
    'validation',
    'a topic has 1 to 64 characters of a-z, 0-9 and _, in parts that are separated by dots',
  );
}

function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  if (pieces.length === 1) return pieces[0] as Uint8Array<ArrayBuffer>;
  const whole = new Uint8Array(pieces.reduce((bytes, piece) => bytes + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
