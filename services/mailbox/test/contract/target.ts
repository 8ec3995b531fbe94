/**
 * A mailbox that the contract suite tests, and a client that speaks HTTP only. Another store runs the same suite if it is
 * served by the same routes.
 */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { randomUUID } from 'node:crypto';
import { blake3 } from '@napi-rs/blake-hash';
import type { MintInit } from '@ron/auth';
import { BATCH_MEDIA_TYPE, decodeBatch, encodeBatch, formatAddress, RECEIVE_BATCH } from '@ron/proto';
import type { BatchItem, ReceivedMessage, ReceiveRequest, SendResult, TokenResult, TopicDto } from '@ron/proto';
import { send, type Reply } from '@ron/testkit/service';

/** A running mailbox. */
export interface ContractTarget extends AsyncDisposable {
  readonly url: string;
  /** An `Authorization` header; by default with all scopes. */
  allow(init?: Partial<Pick<MintInit, 'scopes' | 'caveats'>>): Promise<{ readonly authorization: string }>;
}

export type StartTarget = () => Promise<ContractTarget>;

/** A message of a JSON answer, with its payload decoded. */
export type Received = Omit<ReceivedMessage, 'payload'> & { readonly payload: string };

export interface JsonMessage {
  readonly topic: string;
  readonly payload?: string;
  readonly [field: string]: unknown;
}

export const b3Of = (payload: string | Uint8Array): string => formatAddress(blake3(Buffer.from(payload)));
export const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString('base64');
/** A topic of its own for each test: all share one mailbox. */
export const newTopic = (prefix = 't'): string => `${prefix}.${randomUUID().replaceAll('-', '').slice(0, 16)}`;

export class Http implements Disposable {
  readonly target: ContractTarget;
  readonly #authorization: Readonly<Record<string, string>>;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 16 });

  private constructor(target: ContractTarget, authorization: Readonly<Record<string, string>>) {
    this.target = target;
    this.#authorization = authorization;
  }

  static async open(target: ContractTarget, init?: Parameters<ContractTarget['allow']>[0]): Promise<Http> {
    return new Http(target, await target.allow(init));
  }

  /** A body that is neither text nor bytes is sent as JSON. */
  call(method: string, path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Reply> {
    const isRaw = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
    const json = isRaw ? {} : { 'content-type': 'application/json' };
    return send(this.target.url, method, `/v1/mailbox${path}`, {
      headers: { ...this.#authorization, ...json, ...headers },
      ...(body !== undefined && { body: isRaw ? body : JSON.stringify(body) }),
      agent: this.#agent,
    });
  }

  async ok<T>(method: string, path: string, body?: unknown): Promise<T> {
    const reply = await this.call(method, path, body);
    assert.equal(reply.status, 200, `${method} ${path}: ${reply.text}`);
    return reply.json as T;
  }

  async send(...messages: readonly JsonMessage[]): Promise<readonly SendResult[]> {
    const body = messages.map((message) => ({ ...message, payload: base64(message.payload ?? '') }));
    return (await this.ok<{ results: SendResult[] }>('POST', '/send', { messages: body })).results;
  }

  /** Sends one message that must be stored. */
  async put(topic: string, payload = '', more: object = {}): Promise<Extract<SendResult, { seq: number }>> {
    const [result] = await this.send({ topic, payload, ...more });
    assert.ok(result !== undefined && !('error' in result), JSON.stringify(result));
    return result;
  }

  sendFramed(items: readonly BatchItem[]): Promise<Reply> {
    return this.call('POST', '/send', Buffer.concat(encodeBatch(items)), { 'content-type': BATCH_MEDIA_TYPE });
  }

  async receive(topic: string, request: ReceiveRequest = {}): Promise<readonly Received[]> {
    const { messages } = await this.ok<{ messages: Received[] }>('POST', `/${topic}/receive`, request);
    return messages.map((message) => ({ ...message, payload: Buffer.from(message.payload, 'base64').toString() }));
  }

  /** The only message, which must be there. */
  async take(topic: string, request: ReceiveRequest = {}): Promise<Received> {
    const messages = await this.receive(topic, { wait_ms: 10_000, ...request });
    assert.equal(messages.length, 1);
    return messages[0]!;
  }

  async receiveFramed(topic: string, request: ReceiveRequest = {}): Promise<BatchItem[]> {
    const reply = await this.call('POST', `/${topic}/receive`, request, { accept: BATCH_MEDIA_TYPE });
    assert.equal(reply.status, 200, reply.text);
    assert.equal(reply.headers['content-type'], BATCH_MEDIA_TYPE);
    return decodeBatch(reply.body, RECEIVE_BATCH);
  }

  async settle(op: 'ack' | 'nack' | 'extend', topic: string, tokens: readonly string[], how: object = {}) {
    const body = { tokens, ...(op === 'extend' && { visibility_ms: 30_000 }), ...how };
    return (await this.ok<{ results: TokenResult[] }>('POST', `/${topic}/${op}`, body)).results;
  }

  topic(topic: string): Promise<TopicDto> {
    return this.ok('GET', `/${topic}`);
  }

  /** Asserts the ledger of a topic; fields that are left out are 0. */
  async assertLedger(topic: string, expected: Partial<TopicDto['ledger']>): Promise<void> {
    const { ledger } = await this.topic(topic);
    assert.deepEqual(ledger, { sent: 0, acked: 0, ready: 0, delayed: 0, leased: 0, dead: 0, gone: 0, ...expected });
    const { sent, acked, ready, delayed, leased, dead, gone } = ledger;
    assert.equal(sent, acked + ready + delayed + leased + dead + gone);
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}
