/**
 * A load generator for HTTP keep-alive, in a process of its own: raw sockets, one request in flight on each.
 *
 * It costs far less per request than a real client, so that on two cores the server is what saturates. All answers to one
 * order must have the same length (fixed headers, fixed body), or it says `varying`: the first answer is parsed, the
 * rest are counted.
 * Takes orders over IPC: `{port, request, connections, requests}`; answers `{requests, seconds, p99_ms}`.
 */
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { blake3 } from '@napi-rs/blake-hash';

export interface LoadOrder {
  readonly port: number;
  /** One text, or several that are sent in turn. */
  readonly request?: string | readonly string[];
  /** Instead: writes of new bytes to their own address, each once. */
  readonly puts?: { readonly bytes: number; readonly authorization: string };
  /** Whether answers differ in length: then each one's head is read, which costs a little. Default false. */
  readonly varying?: boolean;
  readonly connections: number;
  /** In all. */
  readonly requests: number;
}

export interface LoadReport {
  readonly requests: number;
  readonly seconds: number;
  readonly p99_ms: number;
}

function answerLength(bytes: Buffer): number | undefined {
  const head_end = bytes.indexOf('\r\n\r\n');
  if (head_end < 0) return undefined;
  const head = bytes.toString('latin1', 0, head_end);
  if (head.startsWith('HTTP/1.1 304')) return head_end + 4;
  if (!head.startsWith('HTTP/1.1 2')) throw new Error(`not a success: ${head}`);
  const length = /\r\ncontent-length: (\d+)/i.exec(head);
  if (length === null) throw new Error('the answer has no Content-Length');
  return head_end + 4 + Number(length[1]);
}

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

function run(order: LoadOrder): Promise<LoadReport> {
  return new Promise((resolve, reject) => {
    const requestOf = requests(order);
    const took_ms: number[] = [];
    const sockets: Socket[] = [];
    let sent = 0;
    let done = 0;
    let expected: number | undefined;
    const start = performance.now();
    const finish = (error?: unknown): void => {
      for (const socket of sockets) socket.destroy();
      if (error === undefined)
        resolve({ requests: done, seconds: (performance.now() - start) / 1000, p99_ms: percentile(took_ms, 0.99) });
      else reject(error);
    };
    for (let i = 0; i < order.connections; i += 1) {
      const socket = connect({ port: order.port, host: '127.0.0.1', noDelay: true });
      sockets.push(socket);
      let got = 0;
      const next = (): void => {
        if (sent >= order.requests) return;
        const text = requestOf(sent);
        sent += 1;
        asked = performance.now();
        socket.write(text);
      };
      let asked = 0;
      socket.on('connect', next);
      socket.on('error', finish);
      socket.on('data', (chunk) => {
        try {
          expected ??= answerLength(chunk as Buffer);
        } catch (error) {
          return finish(error);
        }
        if (expected === undefined) return finish(new Error('the first packet does not hold the head'));
        if (got === 0 && order.varying === true) expected = answerLength(chunk as Buffer);
        if (expected === undefined) return finish(new Error('a packet does not hold the head'));
        got += chunk.length;
        if (got < expected) return;
        if (got > expected) return finish(new Error('answers differ in length'));
        got = 0;
        done += 1;
        took_ms.push(performance.now() - asked);
        if (done === order.requests) finish();
        else next();
      });
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
