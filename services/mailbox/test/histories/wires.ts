/**
 * Clients of a mailbox over HTTP, written from the page alone: one message per request, batches of JSON, framed batches.
 *
 * A refusal throws a `Refusal`; `isSure` states that nothing was stored or changed.
 */
import { Agent } from '@ron/kernel/http';
import type {
  NackRequest,
  OutgoingMessage,
  ReceivedMessage,
  ReceiveRequest,
  SendResult,
  TokenResult,
} from '@ron/proto';
import { send, type Reply } from '@ron/testkit/service';

export interface Wire {
  send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]>;
  receive(topic: string, request: ReceiveRequest): Promise<readonly ReceivedMessage[]>;
  ack(topic: string, tokens: readonly string[]): Promise<readonly TokenResult[]>;
  nack(topic: string, tokens: readonly string[], how: NackRequest): Promise<readonly TokenResult[]>;
  extend(topic: string, tokens: readonly string[], visibility_ms: number): Promise<readonly TokenResult[]>;
}

export class Refusal extends Error {
  readonly reply: Reply;

  constructor(reply: Reply) {
    super(`${reply.status} ${reply.text.slice(0, 200)}`);
    this.reply = reply;
  }

  /** 429 is answered before the work begins. Any other failure may follow a write. */
  get isSure(): boolean {
    return this.reply.status === 429;
  }
}

export type Form = 'single' | 'json' | 'framed';

const FRAMED = 'application/x-ron-batch';

export interface Target {
  /** It changes when the mailbox is started again. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export function httpWire(target: Target, form: Form): Wire {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const post = async (path: string, body: string | Uint8Array, more: Readonly<Record<string, string>>) =>
    await send(target.url, 'POST', `/v1/mailbox/${path}`, { headers: { ...target.headers, ...more }, body, agent });
  const postJson = async (path: string, body: object, more: Readonly<Record<string, string>> = {}) =>
    expect200(await post(path, JSON.stringify(body), { 'content-type': 'application/json', ...more }));
  const settle = async (topic: string, op: string, body: object): Promise<readonly TokenResult[]> =>
    (await postJson(`${topic}/${op}`, body)).json.results;
  return {
    send: async (messages) => {
      if (form === 'single') return [await sendSingle(post, messages[0]!)];
      if (form === 'framed')
        return expect200(await post('send', framed(messages), { 'content-type': FRAMED })).json.results;
      const coded = messages.map((each) => ({ ...each, payload: Buffer.from(each.payload).toString('base64') }));
      return (await postJson('send', { messages: coded })).json.results;
    },
    receive: async (topic, request) => {
      const accept = form === 'framed' ? FRAMED : 'application/json';
      const reply = await postJson(`${topic}/receive`, request, { accept });
      if (form === 'framed') return unframed(reply.body);
      return reply.json.messages.map((each: { payload: string }) => ({
        ...each,
        payload: Buffer.from(each.payload, 'base64'),
      }));
    },
    ack: (topic, tokens) => settle(topic, 'ack', { tokens }),
    nack: (topic, tokens, how) => settle(topic, 'nack', { tokens, ...how }),
    extend: (topic, tokens, visibility_ms) => settle(topic, 'extend', { tokens, visibility_ms }),
  };
}

function expect200(reply: Reply): Reply {
  if (reply.status !== 200) throw new Refusal(reply);
  return reply;
}

async function sendSingle(
  post: (path: string, body: Uint8Array, headers: Readonly<Record<string, string>>) => Promise<Reply>,
  message: OutgoingMessage,
): Promise<SendResult> {
  const { topic, payload, key, idempotency_key, delay_ms } = message;
  const reply = await post(topic, payload, {
    'content-type': 'application/octet-stream',
    ...(key !== undefined && { 'ron-key': key }),
    ...(idempotency_key !== undefined && { 'idempotency-key': idempotency_key }),
    ...(delay_ms !== undefined && { 'ron-delay': String(delay_ms / 1000) }),
  });
  if (reply.status === 409) return { error: 'conflict', id: reply.json.id, detail: reply.text };
  if (reply.status !== (reply.json?.duplicate === true ? 200 : 201)) throw new Refusal(reply);
  return reply.json;
}

function framed(messages: readonly OutgoingMessage[]): Buffer {
  const parts = messages.flatMap(({ payload, ...head }) => {
    const bytes = Buffer.from(JSON.stringify(head));
    const lengths = Buffer.alloc(8);
    lengths.writeUInt32BE(bytes.length, 0);
    lengths.writeUInt32BE(payload.length, 4);
    return [lengths, bytes, payload];
  });
  return Buffer.concat([Buffer.from('RONB'), ...parts]);
}

function unframed(body: Buffer): ReceivedMessage[] {
  if (body.toString('latin1', 0, 4) !== 'RONB') throw new Error('the answer is not a batch');
  const messages: ReceivedMessage[] = [];
  for (let at = 4; at < body.length;) {
    const head_end = at + 8 + body.readUInt32BE(at);
    const end = head_end + body.readUInt32BE(at + 4);
    if (end > body.length) throw new Error('the answer ends within a message');
    messages.push({ ...JSON.parse(body.toString('utf8', at + 8, head_end)), payload: body.subarray(head_end, end) });
    at = end;
  }
  return messages;
}
