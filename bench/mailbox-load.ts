/**
 * The load of the mailbox benchmark as a child process: raw keep-alive sockets with one request in flight on each.
 *
 * Bodies are built in advance, and tokens are cut out of the answers without parsing them, so that the server is the
 * bottleneck. Receives orders over IPC and answers each with a `MailboxReport`.
 */
import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { BATCH_MEDIA_TYPE, encodeBatch } from '@ron/proto';
import { now_ms } from './clocks.ts';

export interface MailboxOrder {
  /**
   * `send`: batches. `cycle`: each client sends a batch, receives one and acks it. `receive`: leases batches for hours.
   * `ack`: acks the messages of `receive`. `drain`: leases batches and acks three of four messages. `polls`: receivers wait,
   * one message is sent at a time.
   */
  readonly kind: 'send' | 'cycle' | 'receive' | 'ack' | 'drain' | 'polls';
  readonly port: number;
  readonly authorization: string;
  readonly topic: string;
  readonly isJson?: boolean;
  readonly clients: number;
  readonly batch: number;
  readonly messages: number;
  readonly payload_bytes: number;
}

export interface MailboxReport {
  readonly seconds: number;
  /** CPU time of the generator. */
  readonly cpu_us: number;
  readonly messages: number;
  /** Of the requests. */
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** Of `polls`: when each send was written, and when its message arrived. */
  readonly arrivals_ms: readonly (readonly [number, number])[];
}

const VISIBILITY_MS = 12 * 3_600_000;
const JSON_TYPE = 'application/json';
const HEAD_END = Buffer.from('\r\n\r\n');

/** One keep-alive connection. */
class Connection {
  readonly #socket: Socket;
  readonly #took_ms: number[];
  #pieces: Buffer[] = [];
  #bytes = 0;
  #total = Infinity;
  #head_end = 0;
  #waiting: { resolve(body: Buffer): void; reject(error: unknown): void } | undefined;

  constructor(port: number, took_ms: number[]) {
    this.#took_ms = took_ms;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (piece: Buffer) => this.#onData(piece));
    this.#socket.on('error', (error) => this.#waiting?.reject(error));
    this.#socket.on('close', () => this.#waiting?.reject(new Error('the server closed a connection')));
  }

  async call(request: Buffer): Promise<Buffer> {
    const sent_ms = performance.now();
    const body = await new Promise<Buffer>((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.write(request);
    });
    this.#took_ms.push(performance.now() - sent_ms);
    return body;
  }

  close(): void {
    this.#waiting = undefined;
    this.#socket.destroy();
  }

  #onData(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
    if (this.#total === Infinity) this.#onHead();
    if (this.#bytes < this.#total) return;
    const whole = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces);
    const waiting = this.#waiting!;
    this.#waiting = undefined;
    this.#pieces = [];
    this.#bytes = 0;
    this.#total = Infinity;
    waiting.resolve(whole.subarray(this.#head_end));
  }

  #onHead(): void {
    const bytes = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces);
    const head_end = bytes.indexOf(HEAD_END);
    if (head_end < 0) return;
    const head = bytes.toString('latin1', 0, head_end);
    const length = /\r\ncontent-length: (\d+)/i.exec(head);
    if (!head.startsWith('HTTP/1.1 2') || length === null) {
      this.#waiting!.reject(new Error(`request failed: ${bytes.toString('latin1', 0, 1000)}`));
      return;
    }
    this.#head_end = head_end + 4;
    this.#total = this.#head_end + Number(length[1]);
  }
}

const requestTo =
  (order: MailboxOrder) =>
  (path: string, type: string, body: string | Uint8Array): Buffer => {
    const bytes = Buffer.from(body as Uint8Array);
    const head =
      `POST /v1/mailbox/${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: ${order.authorization}\r\n` +
      `Content-Type: ${type}\r\nAccept: ${order.isJson === true ? JSON_TYPE : BATCH_MEDIA_TYPE}\r\n` +
      `Content-Length: ${bytes.length}\r\n\r\n`;
    return Buffer.concat([Buffer.from(head, 'latin1'), bytes]);
  };

function requestsOf(order: MailboxOrder) {
  const { topic, batch, payload_bytes, isJson = false } = order;
  const to = requestTo(order);
  const payloads = Array.from({ length: batch }, () => randomBytes(payload_bytes));
  const framed = (): Buffer =>
    to('send', BATCH_MEDIA_TYPE, Buffer.concat(encodeBatch(payloads.map((payload) => ({ head: { topic }, payload })))));
  const asJson = (): Buffer => {
    const messages = payloads.map((payload) => ({ topic, payload: payload.toString('base64') }));
    return to('send', JSON_TYPE, JSON.stringify({ messages }));
  };
  const receiveWithin = (wait_ms: number): Buffer =>
    to(`${topic}/receive`, JSON_TYPE, JSON.stringify({ max: batch, visibility_ms: VISIBILITY_MS, wait_ms }));
  return {
    send: isJson ? asJson() : framed(),
    receive: receiveWithin(0),
    wait: receiveWithin(20_000),
    ack: (tokens: readonly string[]) => to(`${topic}/ack`, JSON_TYPE, `{"tokens":["${tokens.join('","')}"]}`),
  };
}

const TOKEN = Buffer.from('"token":"');

function tokensIn(body: Buffer): string[] {
  const tokens: string[] = [];
  for (let at = body.indexOf(TOKEN); at >= 0; at = body.indexOf(TOKEN, at)) {
    const end = body.indexOf(34, at + TOKEN.length);
    tokens.push(body.toString('latin1', at + TOKEN.length, end));
    at = end;
  }
  return tokens;
}

/** The error of a refused message is in its result. */
function requireStored(answer: Buffer): void {
  if (answer.includes('"error"')) throw new Error(`a message was refused: ${answer.toString('latin1', 0, 300)}`);
}

function requireOk(answer: Buffer): void {
  if (answer.includes('"stale"') || answer.includes('"unknown"')) throw new Error('an ack was refused');
}

type Requests = ReturnType<typeof requestsOf>;

/** Tokens of `receive`, for a later `ack`. */
const leased: string[] = [];

async function send(connection: Connection, requests: Requests): Promise<void> {
  requireStored(await connection.call(requests.send));
}

async function cycle(connection: Connection, requests: Requests): Promise<number> {
  await send(connection, requests);
  return await drain(connection, requests, () => true);
}

/** Every fourth message stays leased. */
const notFourth = (_: string, index: number): boolean => index % 4 < 3;

async function drain(connection: Connection, requests: Requests, isAcked: typeof notFourth): Promise<number> {
  const tokens = tokensIn(await connection.call(requests.receive));
  if (tokens.length > 0) requireOk(await connection.call(requests.ack(tokens.filter(isAcked))));
  return tokens.length;
}

async function receive(connection: Connection, requests: Requests): Promise<number> {
  const tokens = tokensIn(await connection.call(requests.receive));
  leased.push(...tokens);
  return tokens.length;
}

async function ack(connection: Connection, requests: Requests, { batch }: MailboxOrder): Promise<number> {
  const tokens = leased.splice(0, batch);
  if (tokens.length > 0) requireOk(await connection.call(requests.ack(tokens)));
  return tokens.length;
}

/** The messages of all clients. */
async function byClients(
  order: MailboxOrder,
  kind: Exclude<MailboxOrder['kind'], 'polls'>,
  connections: readonly Connection[],
): Promise<number> {
  const requests = requestsOf(order);
  let left = order.messages;
  let done = 0;
  const steps = {
    send,
    cycle,
    receive,
    ack,
    drain: (connection: Connection) => drain(connection, requests, notFourth),
  };
  const client = async (connection: Connection): Promise<void> => {
    while (left > 0) {
      left -= order.batch;
      const count = await steps[kind](connection, requests, order);
      done += count ?? order.batch;
      if (count === 0 && kind !== 'cycle') return;
    }
  };
  await Promise.all(connections.map(client));
  return done;
}

/** One message at a time, to receivers of which each waits for one. */
async function polls(order: MailboxOrder, connections: readonly Connection[]): Promise<[number, number][]> {
  const requests = requestsOf({ ...order, batch: 1 });
  const [sender, ...receivers] = connections;
  const arrivals_ms: [number, number][] = [];
  let arrived: (at_ms: number) => void = () => undefined;
  const over = new AbortController();
  const receiving = receivers.map(async (receiver) => {
    while (!over.signal.aborted) {
      const tokens = tokensIn(await receiver.call(requests.wait));
      if (tokens.length === 0) continue;
      arrived(now_ms());
      requireOk(await receiver.call(requests.ack(tokens)));
    }
  });
  // Errors of the receivers are reported by the wait for the arrival.
  const failed = Promise.all(receiving);
  for (let count = 0; count < order.messages; count++) {
    const arrival = new Promise<number>((resolve) => (arrived = resolve));
    const sent_ms = now_ms();
    await send(sender!, requests);
    const at_ms = await Promise.race([arrival, failed]);
    arrivals_ms.push([sent_ms, at_ms as number]);
  }
  over.abort();
  for (const connection of connections) connection.close();
  return arrivals_ms;
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

async function run(order: MailboxOrder): Promise<MailboxReport> {
  const took_ms: number[] = [];
  const connections = Array.from({ length: order.clients }, () => new Connection(order.port, took_ms));
  const cpu = process.cpuUsage();
  const start = performance.now();
  try {
    const { kind } = order;
    const arrivals_ms = kind === 'polls' ? await polls(order, connections) : [];
    const messages = kind === 'polls' ? order.messages : await byClients(order, kind, connections);
    const seconds = (performance.now() - start) / 1000;
    const { user, system } = process.cpuUsage(cpu);
    const sorted = took_ms.toSorted((a, b) => a - b);
    const [p50_ms, p99_ms] = [percentile(sorted, 0.5), percentile(sorted, 0.99)];
    return { seconds, cpu_us: user + system, messages, p50_ms, p99_ms, arrivals_ms };
  } finally {
    for (const connection of connections) connection.close();
  }
}

process.on('message', (order: MailboxOrder) => {
  run(order).then(
    (report) => process.send!(report),
    (error: unknown) => process.send!({ error: String(error) }),
  );
});
