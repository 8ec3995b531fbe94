/**
 * A load generator for HTTP keep-alive, in a process of its own: raw sockets, one request in flight on each.
 *
 * It costs far less per request than a real client, so that on two cores the server is what saturates. All answers to one
 * request text must have the same length (fixed headers, fixed body): the first answer is parsed, the rest are counted.
 * Takes orders over IPC: `{port, request, connections, requests}`; answers `{requests, seconds}`.
 */
import { connect } from 'node:net';
import type { Socket } from 'node:net';

export interface LoadOrder {
  readonly port: number;
  readonly request: string;
  readonly connections: number;
  /** In all. */
  readonly requests: number;
}

export interface LoadReport {
  readonly requests: number;
  readonly seconds: number;
}

function answerLength(bytes: Buffer): number | undefined {
  const head_end = bytes.indexOf('\r\n\r\n');
  if (head_end < 0) return undefined;
  const head = bytes.toString('latin1', 0, head_end);
  if (!head.startsWith('HTTP/1.1 2')) throw new Error(`not a success: ${head}`);
  const length = /\r\ncontent-length: (\d+)/i.exec(head);
  if (length === null) throw new Error('the answer has no Content-Length');
  return head_end + 4 + Number(length[1]);
}

function run(order: LoadOrder): Promise<LoadReport> {
  return new Promise((resolve, reject) => {
    const text = Buffer.from(order.request, 'latin1');
    const sockets: Socket[] = [];
    let sent = 0;
    let done = 0;
    let expected: number | undefined;
    const start = performance.now();
    const finish = (error?: unknown): void => {
      for (const socket of sockets) socket.destroy();
      if (error === undefined) resolve({ requests: done, seconds: (performance.now() - start) / 1000 });
      else reject(error);
    };
    for (let i = 0; i < order.connections; i += 1) {
      const socket = connect({ port: order.port, host: '127.0.0.1', noDelay: true });
      sockets.push(socket);
      let got = 0;
      const next = (): void => {
        if (sent >= order.requests) return;
        sent += 1;
        socket.write(text);
      };
      socket.on('connect', next);
      socket.on('error', finish);
      socket.on('data', (chunk) => {
        expected ??= answerLength(chunk as Buffer);
        if (expected === undefined) return finish(new Error('the first packet does not hold the head'));
        got += chunk.length;
        if (got < expected) return;
        if (got > expected) return finish(new Error('answers differ in length'));
        got = 0;
        done += 1;
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
