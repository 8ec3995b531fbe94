/** A server that answers each request with one byte source, and clients for it. */
import { createServer, request } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { Admission } from '@ron/kernel';
import { Connection } from '../../src/connection/connection.ts';
import type { InflightRequest, Ticket } from '../../src/connection/connection.ts';
import { AddressShare } from '../../src/connection/fair-scheduler.ts';
import { Sweeper } from '../../src/connection/sweeper.ts';
import type { TransferLimits } from '../../src/connection/transfer-watch.ts';
import { serveBytes } from '../../src/bytes/bytes.ts';
import type { ByteOutcome, ByteSource, ServeBytesInit } from '../../src/bytes/bytes.ts';

export const KIB = 1024;
export const MIB = 1024 * KIB;

export interface ByteBench {
  readonly port: number;
  /** Connections that were cut because the client does not read. */
  readonly cuts: number;
  /** The outcome of the next answer. */
  outcome(): Promise<ByteOutcome>;
  get(headers?: Record<string, string>, method?: string): Promise<ByteReply>;
  dial(): Promise<Socket>;
}

export interface ByteReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** Whether the body has the announced end. */
  readonly whole: boolean;
}

/** All connections come from it. */
const ADDRESS = new Admission({ inflight_max: 1, connections_max: 1, connections_per_ip_max: 1 }).hold('127.0.0.1');

/** A request without a body, which keeps its connection under watch. */
const NO_BODY: InflightRequest = {
  connectionLost: () => {},
  bodyOverdue: () => false,
  wantsBytes: () => false,
  bodyBroken: () => false,
  clientStalled: () => {},
  readStalled: () => {},
};

/** Returns outcomes in order, to callers that may wait for them. */
class Outcomes {
  readonly #done: ByteOutcome[] = [];
  readonly #waiting: ((outcome: ByteOutcome) => void)[] = [];

  readonly push = (outcome: ByteOutcome): void => {
    const waiter = this.#waiting.shift();
    if (waiter === undefined) this.#done.push(outcome);
    else waiter(outcome);
  };

  next(): Promise<ByteOutcome> {
    const ready = this.#done.shift();
    return ready === undefined ? new Promise((resolve) => void this.#waiting.push(resolve)) : Promise.resolve(ready);
  }
}

type SourceOf = (req: IncomingMessage, res: ServerResponse) => ByteSource | Promise<ByteSource>;

export async function byteBench(
  t: TestContext,
  source: SourceOf,
  init: Partial<ServeBytesInit> = {},
  write: TransferLimits = { stall_ms: 5000, rate_bytes_per_s_min: 1 },
): Promise<ByteBench> {
  let cuts = 0;
  const read = { stall_ms: 5000, rate_bytes_per_s_min: 1 };
  const sweeper = new Sweeper({
    period_ms: 20,
    read,
    write,
    drain_idle_ms: 250,
    header_timeout_ms: 5000,
    onWriteCut: () => (cuts += 1),
    onDiscardCut: () => undefined,
  });
  const outcomes = new Outcomes();
  const port = await listen(t, sweeper, async (req, res) => {
    await serveBytes(req, res, await source(req, res), {
      corr_id: 'corr',
      signal: new AbortController().signal,
      stall_ms: 5000,
      onOutcome: outcomes.push,
      ...init,
    });
  });
  return {
    port,
    get cuts() {
      return cuts;
    },
    outcome: () => outcomes.next(),
    get: (headers = {}, method = 'GET') => get(port, headers, method),
    dial: () => dial(t, port),
  };
}

/** Listens with every connection under the sweeper. Returns the port. */
async function listen(
  t: TestContext,
  sweeper: Sweeper,
  serve: (req: IncomingMessage, res: ServerResponse) => Promise<void>,
): Promise<number> {
  const server: Server = createServer((req, res) => {
    sweeper.watch(Connection.of(req.socket)!);
    void serve(req, res);
  });
  server.on('connection', (socket) => {
    const ticket: Ticket = {
      ip: '127.0.0.1',
      opened_ms: performance.now(),
      address: ADDRESS,
      caller: 'open',
      counted: false,
      probation: false,
    };
    new Connection(socket, ticket, performance.now(), { headLate: () => undefined }, new AddressShare()).add(NO_BODY);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    sweeper.close();
    server.closeAllConnections();
    return new Promise((resolve) => void server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

function get(port: number, headers: Record<string, string>, method: string): Promise<ByteReply> {
  return new Promise((resolve, reject) => {
    const req = request({ host: '127.0.0.1', port, headers, method, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => void chunks.push(chunk));
      res.on('error', () => {});
      res.on('close', () => {
        resolve({
          status: res.statusCode!,
          headers: res.headers,
          body: Buffer.concat(chunks),
          whole: res.complete,
        });
      });
    });
    req.on('error', reject);
    req.end();
  });
}

function dial(t: TestContext, port: number): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket));
    socket.on('error', () => {});
    t.after(() => void socket.destroy());
  });
}

export interface Tape extends ByteSource {
  closed: number;
  pulled: number;
}

const inTwo = (bytes: Buffer): Buffer[] =>
  bytes.length < 2 ? [bytes] : [bytes.subarray(0, bytes.length >> 1), bytes.subarray(bytes.length >> 1)];

/** A source of `data` in batches of `chunk_bytes` that records whether it was closed. */
export function tape(data: Buffer, chunk_bytes = 64 * KIB, spoil?: (index: number) => Promise<void> | void): Tape {
  const source: Tape = {
    size: data.length,
    etag: '"tape"',
    media_type: 'application/octet-stream',
    closed: 0,
    pulled: 0,
    async *read(start, end) {
      try {
        for (let at = start, index = 0; at < end; at += chunk_bytes, index += 1) {
          await spoil?.(index);
          source.pulled += 1;
          yield inTwo(data.subarray(at, Math.min(end, at + chunk_bytes)));
        }
      } finally {
        source.closed += 1;
      }
    },
  };
  return source;
}

/** Bytes that differ by offset, so that a wrong offset is detected. */
export function pattern(length: number): Buffer {
  return Buffer.from(
    Uint32Array.from({ length: Math.ceil(length / 4) }, (_, i) => Math.imul(i, 2654435761)).buffer,
    0,
    length,
  );
}
