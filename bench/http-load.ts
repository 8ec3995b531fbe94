/**
 * A load generator for HTTP keep-alive as a child process: raw sockets with one request in flight on each.
 *
 * It uses far less CPU per request than a real client, so that the server is the bottleneck on two cores: requests are
 * built in advance, all sockets read into one buffer, and only status and length of an answer are parsed, at their offsets
 * in the previous answer. The report includes its own CPU time.
 * Receives orders over IPC, `{port, request, connections, requests}`, and answers `{requests, seconds, p95_ms, p99_ms, cpu_us}`.
 */
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { blake3 } from '@napi-rs/blake-hash';

export interface LoadOrder {
  readonly port: number;
  /** One request, or several that are sent in turn. */
  readonly request?: string | readonly string[];
  /** Instead of `request`: PUTs of new bytes to their own address. */
  readonly puts?: { readonly bytes: number; readonly authorization: string };
  readonly connections: number;
  /** Number of requests in total. */
  readonly requests: number;
}

export interface LoadReport {
  readonly requests: number;
  readonly seconds: number;
  readonly p95_ms: number;
  readonly p99_ms: number;
  /** CPU time of the generator in total. */
  readonly cpu_us: number;
}

/** The offset of the length in an answer, and the end of the head if the length has `digits` digits. */
interface Shape {
  readonly status: number;
  readonly length_at: number;
  readonly digits: number;
  readonly head_end: number;
}

const READ_BYTES = 64 * 1024;
const CR = 13;
const LF = 10;
const ZERO = 48;

/** The total length of the answer at the beginning of `bytes`. Throws if its status is not 2xx. */
function parseHead(bytes: Buffer): { readonly total: number; readonly shape: Shape | undefined } {
  const head_end = bytes.indexOf('\r\n\r\n');
  if (head_end < 0) throw new Error('the head is split between packets');
  const head = bytes.toString('latin1', 0, head_end);
  if (head.startsWith('HTTP/1.1 304')) return { total: head_end + 4, shape: undefined };
  if (!head.startsWith('HTTP/1.1 2')) throw new Error(`request failed: ${head}`);
  const length = /\r\ncontent-length: (\d+)/i.exec(head);
  if (length === null) throw new Error('the answer has no Content-Length');
  const digits = length[1]!.length;
  const length_at = length.index + length[0].length - digits;
  return { total: head_end + 4 + Number(length[1]), shape: { status: statusOf(bytes), length_at, digits, head_end } };
}

/** Like `parseHead`, but fast, if the head has the layout of an earlier answer except for the number of digits. */
function lengthByShape(bytes: Buffer, { status, length_at, digits, head_end }: Shape): number | undefined {
  if (statusOf(bytes) !== status || bytes[length_at - 1] !== 32 || bytes[length_at - 2] !== 58) return undefined;
  let length = 0;
  let at = length_at;
  for (; bytes[at] !== CR; at += 1) {
    const digit = bytes[at]! - ZERO;
    if (!(digit >= 0 && digit <= 9)) return undefined;
    length = length * 10 + digit;
  }
  const end = head_end + at - length_at - digits;
  if (bytes[end] !== CR || bytes[end + 1] !== LF || bytes[end + 2] !== CR || bytes[end + 3] !== LF) return undefined;
  return end + 4 + length;
}

const statusOf = (bytes: Buffer): number => bytes[9]! * 65_536 + bytes[10]! * 256 + bytes[11]!;

function requests({ request, puts }: LoadOrder): (index: number) => Buffer {
  if (puts !== undefined) {
    const body = randomBytes(puts.bytes);
    return (index) => {
      body.writeUInt32LE(index, 0);
      const head =
        `PUT /o/b3:${blake3(body).toString('hex')} HTTP/1.1\r\nHost: 127.0.0.1\r\n` +
        `Authorization: ${puts.authorization}\r\nContent-Length: ${body.length}\r\n\r\n`;
      return Buffer.concat([Buffer.from(head, 'latin1'), body]);
    };
  }
  const texts = (typeof request === 'string' ? [request] : (request ?? [])).map((text) => Buffer.from(text, 'latin1'));
  return (index) => texts[index % texts.length]!;
}

function percentile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? 0;
}

/** Lengths of answers from their first bytes. Answers of the shape of the last one are not parsed. */
function answerLengths(): (bytes: Buffer) => number {
  let shape: Shape | undefined;
  return (bytes) => {
    const length = shape === undefined ? undefined : lengthByShape(bytes, shape);
    if (length !== undefined) return length;
    const head = parseHead(bytes);
    shape = head.shape;
    return head.total;
  };
}

function run(order: LoadOrder): Promise<LoadReport> {
  return new Promise((resolve, reject) => {
    const requestOf = requests(order);
    const took_ms: number[] = [];
    const sockets: Socket[] = [];
    // All sockets share one buffer: each read is processed before the next.
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    const lengthOf = answerLengths();
    let sent = 0;
    let done = 0;
    const start = performance.now();
    const cpu = process.threadCpuUsage();
    const finish = (error?: unknown): void => {
      for (const socket of sockets) socket.destroy();
      if (error !== undefined) return reject(error);
      const { user, system } = process.threadCpuUsage(cpu);
      const seconds = (performance.now() - start) / 1000;
      const [p95_ms, p99_ms] = [percentile(took_ms, 0.95), percentile(took_ms, 0.99)];
      resolve({ requests: done, seconds, p95_ms, p99_ms, cpu_us: user + system });
    };
    for (let i = 0; i < order.connections; i += 1) {
      /** Remaining bytes of the answer; 0 while its head is expected. */
      let left = 0;
      let sent_ms = 0;
      const next = (): void => {
        if (sent >= order.requests) return;
        const text = requestOf(sent);
        sent += 1;
        sent_ms = performance.now();
        socket.write(text);
      };
      const onRead = (bytes: number): void => {
        if (left === 0) left = lengthOf(bytes === READ_BYTES ? buffer : buffer.subarray(0, bytes));
        left -= bytes;
        if (left > 0) return;
        if (left < 0) throw new Error('unexpected second answer');
        done += 1;
        took_ms.push(performance.now() - sent_ms);
        if (done === order.requests) finish();
        else next();
      };
      const callback = (bytes: number): boolean => {
        try {
          onRead(bytes);
        } catch (error) {
          finish(error);
        }
        return true;
      };
      const socket = connect({ port: order.port, host: '127.0.0.1', noDelay: true, onread: { buffer, callback } });
      sockets.push(socket);
      socket.on('connect', next);
      socket.on('error', finish);
      socket.on('end', () => finish(new Error('the server closed a connection')));
    }
  });
}

if (process.send !== undefined) {
  process.on('message', (order: LoadOrder) => {
    run(order).then(
      (report) => process.send!(report),
      (error: unknown) => process.send!({ error: String(error) }),
    );
  });
}
