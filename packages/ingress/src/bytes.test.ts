import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import fc from 'fast-check';
import { RonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { fuzzRuns } from '../test/fuzz-runs.ts';
import { serveBytes } from './bytes.ts';
import type { ByteOutcome, ByteSource, ServeBytesInit } from './bytes.ts';
import { Connection } from './connection.ts';
import { Share } from './passes.ts';
import type { Flight, Ticket } from './connection.ts';
import { CREDIT_BYTES_MAX } from './send-watch.ts';
import { Sweeper } from './sweeper.ts';
import type { TransferLimits } from './transfer-watch.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

interface Bench {
  readonly port: number;
  /** Connections that were cut because the client does not read. */
  readonly cuts: number;
  /** The outcome of the next answer. */
  outcome(): Promise<ByteOutcome>;
  get(headers?: Record<string, string>, method?: string): Promise<Reply>;
  dial(): Promise<Socket>;
}

interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** Whether the body ended as it should. */
  readonly whole: boolean;
}

/** A request without a body, which keeps its connection under watch. */
const NO_BODY: Flight = {
  connectionLost: () => {},
  bodyOverdue: () => false,
  wantsBytes: () => false,
  bodyBroken: () => false,
  clientStalled: () => {},
  readStalled: () => {},
};

async function bench(
  t: TestContext,
  source: (req: IncomingMessage, res: ServerResponse) => ByteSource | Promise<ByteSource>,
  init: Partial<ServeBytesInit> = {},
  write: TransferLimits = { stall_ms: 5000, rate_bytes_per_s_min: 1 },
): Promise<Bench> {
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
  const done: ByteOutcome[] = [];
  const waiting: ((outcome: ByteOutcome) => void)[] = [];
  const onOutcome = (outcome: ByteOutcome): void => {
    const waiter = waiting.shift();
    if (waiter === undefined) done.push(outcome);
    else waiter(outcome);
  };
  const serve = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    await serveBytes(req, res, await source(req, res), {
      corr_id: 'corr',
      signal: new AbortController().signal,
      stall_ms: 5000,
      onOutcome,
      ...init,
    });
  };
  const server: Server = createServer((req, res) => {
    sweeper.watch(Connection.of(req.socket)!);
    void serve(req, res);
  });
  server.on('connection', (socket) => {
    const ticket: Ticket = {
      ip: '127.0.0.1',
      opened_ms: performance.now(),
      address: undefined,
      caller: 'open',
      counted: false,
      probation: false,
    };
    new Connection(socket, ticket, performance.now(), { headLate: () => undefined }, new Share()).add(NO_BODY);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    sweeper.close();
    server.closeAllConnections();
    return new Promise((resolve) => void server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    get cuts() {
      return cuts;
    },
    outcome: () => {
      const ready = done.shift();
      return ready === undefined ? new Promise((resolve) => void waiting.push(resolve)) : Promise.resolve(ready);
    },
    get: (headers = {}, method = 'GET') =>
      new Promise((resolve, reject) => {
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
      }),
    dial: () =>
      new Promise((resolve) => {
        const socket = connect(port, '127.0.0.1', () => resolve(socket));
        socket.on('error', () => {});
        t.after(() => void socket.destroy());
      }),
  };
}

interface Tape extends ByteSource {
  closed: number;
  pulled: number;
}

const inTwo = (bytes: Buffer): Buffer[] =>
  bytes.length < 2 ? [bytes] : [bytes.subarray(0, bytes.length >> 1), bytes.subarray(bytes.length >> 1)];

/** A source of `data` in batches of `chunk_bytes` that knows whether it was closed. */
function tape(data: Buffer, chunk_bytes = 64 * KIB, spoil?: (index: number) => Promise<void> | void): Tape {
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

/** Bytes that differ by place, so that a wrong offset shows. */
function pattern(length: number): Buffer {
  return Buffer.from(
    Uint32Array.from({ length: Math.ceil(length / 4) }, (_, i) => Math.imul(i, 2654435761)).buffer,
    0,
    length,
  );
}

test('whole bodies, from RAM and from a source, with their headers', async (t) => {
  const data = pattern(3 * MIB + 7);
  const sources: ByteSource[] = [
    tape(data),
    { ...tape(data), ram: [data] },
    { ...tape(data.subarray(0, 100)), ram: [data.subarray(0, 40), data.subarray(40, 100)] },
  ];
  let next = 0;
  const http = await bench(t, () => sources[next++]!, { headers: { 'X-Extra': 'yes' } });
  for (const source of sources) {
    const reply = await http.get();
    assert.equal(reply.status, 200);
    assert.ok(reply.body.equals(data.subarray(0, source.size)));
    assert.equal(reply.headers['content-length'], String(source.size));
    assert.equal(reply.headers['etag'], '"tape"');
    assert.equal(reply.headers['accept-ranges'], 'bytes');
    assert.equal(reply.headers['x-corr-id'], 'corr');
    assert.equal(reply.headers['x-extra'], 'yes');
    assert.deepEqual(await http.outcome(), { status: 200, body_bytes: source.size, result: 'complete' });
  }
});

test('HEAD, 304 and an empty object read nothing', async (t) => {
  const source = tape(pattern(100));
  const empty = tape(Buffer.alloc(0));
  let current: ByteSource = source;
  const http = await bench(t, () => current);
  const head = await http.get({ range: 'bytes=0-1' }, 'HEAD');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], '100');
  assert.equal(head.body.length, 0);
  const same = await http.get({ 'if-none-match': '"tape"' });
  assert.equal(same.status, 304);
  assert.equal(same.headers['content-length'], undefined);
  assert.equal(source.closed + source.pulled, 0);
  current = empty;
  const none = await http.get();
  assert.equal(none.status, 200);
  assert.equal(none.headers['content-length'], '0');
  assert.equal((await http.get({ range: 'bytes=0-' })).status, 416);
});

test('412 and 416 are problems; 416 says how large it is', async (t) => {
  const http = await bench(t, () => tape(pattern(100)));
  const range = await http.get({ range: 'bytes=100-' });
  assert.equal(range.status, 416);
  assert.equal(range.headers['content-range'], 'bytes */100');
  assert.equal(range.headers['content-type'], 'application/problem+json');
  assert.equal(JSON.parse(String(range.body)).code, 'range_not_satisfiable');
  const failed = await http.get({ 'if-match': '"other"' });
  assert.equal(failed.status, 412);
  assert.equal(JSON.parse(String(failed.body)).code, 'precondition_failed');
  assert.equal((await http.outcome()).result, 'refused');
});

test('a refusal can be answered by the caller', async (t) => {
  const refused: unknown[] = [];
  let answer: ServerResponse | undefined;
  const source = tape(pattern(100), 10, () => {
    throw new RonError('integrity', 'bad');
  });
  const http = await bench(t, (_req, res) => ((answer = res), source), {
    refuse: (error) => {
      refused.push(error);
      answer!.writeHead(418).end();
    },
  });
  assert.equal((await http.get()).status, 418);
  assert.equal((await http.get({ range: 'bytes=100-' })).status, 418);
  assert.deepEqual(
    refused.map((error) => (error as RonError).code),
    ['integrity', 'range_not_satisfiable'],
  );
});

test('any range of any object, in any chunks, from RAM or not, is exact', async (t) => {
  const data = pattern(5000);
  let source: ByteSource = tape(data);
  const http = await bench(t, () => source);
  await fc.assert(
    fc.asyncProperty(
      fc.nat(5000),
      fc.nat(5100),
      fc.nat(5100),
      fc.integer({ min: 1, max: 2000 }),
      fc.boolean(),
      async (size, first, last, chunk, ram) => {
        const whole = data.subarray(0, size);
        source = ram ? { ...tape(whole, chunk), ram: [whole.subarray(0, 7), whole.subarray(7)] } : tape(whole, chunk);
        const reply = await http.get({ range: `bytes=${first}-${last}` });
        assert.equal(reply.whole, true);
        if (last < first) {
          assert.equal(reply.status, 200);
          assert.ok(reply.body.equals(whole));
        } else if (first >= size) assert.equal(reply.status, 416);
        else {
          assert.equal(reply.status, 206);
          assert.ok(reply.body.equals(whole.subarray(first, last + 1)));
          assert.equal(reply.headers['content-range'], `bytes ${first}-${Math.min(last, size - 1)}/${size}`);
        }
      },
    ),
    fuzzRuns(150),
  );
});

test('a source that fails before its first chunk gives a clean problem, and is closed', async (t) => {
  const source = tape(pattern(MIB), 64 * KIB, () => {
    throw new RonError('integrity', 'chunk 0 does not match');
  });
  const http = await bench(t, () => source);
  const reply = await http.get();
  assert.equal(reply.status, 500);
  assert.equal(JSON.parse(String(reply.body)).code, 'integrity');
  assert.equal(reply.headers['etag'], undefined, 'nothing of the object is said');
  assert.equal(reply.whole, true);
  assert.equal(source.closed, 1);
});

test('a source that fails later has its connection destroyed: never a clean end', async (t) => {
  const source = tape(pattern(MIB), 64 * KIB, (index) => {
    if (index === 3) throw new RonError('integrity', 'chunk 3 does not match');
  });
  const http = await bench(t, () => source);
  const reply = await http.get();
  assert.equal(reply.status, 200);
  assert.equal(reply.whole, false);
  assert.ok(reply.body.length <= 3 * 64 * KIB);
  assert.equal(source.closed, 1);
  const outcome = await http.outcome();
  assert.equal(outcome.result, 'source');
  assert.equal((outcome.error as RonError).code, 'integrity');
});

test('a source that yields too little, too much or nothing never makes a whole answer', async (t) => {
  const sizes: readonly (readonly [chunks: number[], status: number])[] = [
    [[], 500],
    [[0], 500],
    [[101], 500],
    [[50], 200],
    [[50, 51], 200],
    [[50, 0, 50], 200],
    [[99, 2], 200],
  ];
  let chunks: readonly number[] = [];
  let closed = 0;
  const http = await bench(t, () => ({
    size: 100,
    etag: '"x"',
    media_type: 'a/b',
    async *read() {
      try {
        for (const size of chunks) yield [Buffer.alloc(size)];
      } finally {
        closed += 1;
      }
    },
  }));
  for (const [given, status] of sizes) {
    chunks = given;
    const reply = await http.get();
    assert.equal(reply.status, status, given.join());
    assert.equal(reply.whole, status === 500, given.join());
    assert.ok(status === 500 || reply.body.length < 100);
  }
  await eventually('all sources are closed', () => closed === sizes.length);
});

test('one chunk is held: the next is asked for when the kernel has taken the last', async (t) => {
  let socket: Socket | undefined;
  let held_bytes_max = 0;
  const source = tape(pattern(4 * MIB), 64 * KIB, () => {
    held_bytes_max = Math.max(held_bytes_max, socket?.writableLength ?? 0);
  });
  const http = await bench(t, (req) => ((socket = req.socket), source));
  const reply = await http.get();
  assert.equal(reply.body.length, 4 * MIB);
  assert.equal(held_bytes_max, 0);
});

/** A client that never reads acknowledges its receive buffer, and then has this long. */
const UNREAD: TransferLimits = { stall_ms: 300, rate_bytes_per_s_min: MIB };

test('a client that stops reading is cut; the source is closed and little was read', async (t) => {
  const source = tape(Buffer.alloc(64 * MIB));
  const rate_bytes_per_s_min = 128 * KIB;
  const http = await bench(t, () => source, {}, { ...UNREAD, rate_bytes_per_s_min });
  const socket = await http.dial();
  const from_ms = performance.now();
  socket.pause();
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  const outcome = await http.outcome();
  const took_ms = performance.now() - from_ms;
  assert.equal(outcome.result, 'client_gone');
  assert.equal(http.cuts, 1);
  assert.ok(took_ms >= UNREAD.stall_ms, `took ${took_ms}`);
  // The kernel accepted several MiB. Had they counted as acknowledged, the client would have had this long.
  const unmeasured_ms = UNREAD.stall_ms + (CREDIT_BYTES_MAX / rate_bytes_per_s_min) * 1000;
  if (process.platform === 'linux') assert.ok(took_ms < unmeasured_ms, `took ${took_ms}`);
  assert.equal(source.closed, 1);
  assert.ok(source.pulled < 300, `pulled ${source.pulled} of 1024 chunks`);
});

test('a large body from RAM is cut the same way', async (t) => {
  for (const size of [MIB, 64 * MIB]) {
    const ram = Buffer.alloc(size);
    const http = await bench(t, () => ({ ...tape(ram), ram: [ram] }), {}, UNREAD);
    const client = await http.dial();
    client.pause();
    // Sends requests until the kernel's buffers are full, so that even a small body has to wait.
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(size === MIB ? 16 : 1));
    while ((await http.outcome()).result === 'complete') assert.equal(http.cuts, 0);
    assert.equal(http.cuts, 1);
  }
});

test('a client that reads too slowly on average is cut, one that is just slow is not', async (t) => {
  const source = tape(Buffer.alloc(32 * MIB));
  for (const [stall_ms, rate_bytes_per_s_min, result] of [
    [200, 10_000 * MIB, 'client_gone'],
    [5000, 1, 'complete'],
  ] as const) {
    const http = await bench(t, () => source, {}, { stall_ms, rate_bytes_per_s_min });
    const socket = await http.dial();
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    socket.on('data', () => {
      socket.pause();
      setTimeout(() => socket.resume(), 2);
    });
    assert.equal((await http.outcome()).result, result);
    assert.equal(http.cuts, result === 'complete' ? 0 : 1);
  }
});

test('a client that leaves stops the source', async (t) => {
  let seen: AbortSignal | undefined;
  const base = tape(Buffer.alloc(64 * MIB));
  const source: ByteSource = {
    ...base,
    read: (start, end, signal) => ((seen = signal), base.read(start, end, signal)),
  };
  const http = await bench(t, () => source);
  const socket = await http.dial();
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  socket.once('data', () => void socket.destroy());
  assert.equal((await http.outcome()).result, 'client_gone');
  assert.equal(base.closed, 1);
  assert.equal(seen!.aborted, true);
});

test('a client that left before the bytes were found costs nothing more', async (t) => {
  const found = tape(pattern(MIB));
  const http = await bench(t, async (req) => {
    client.destroy();
    await eventually('the socket is destroyed', () => req.socket.destroyed);
    await new Promise((resolve) => void setImmediate(resolve));
    return found;
  });
  const client = await http.dial();
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.equal((await http.outcome()).result, 'client_gone');
  assert.equal(found.pulled, 0);
});

test('a source that stands still is cut after stall_ms: 504 before headers, a destroyed socket after', async (t) => {
  for (const [stuck_at, status] of [
    [0, 504],
    [1, 200],
  ] as const) {
    const source = tape(pattern(MIB), 64 * KIB, (index) => (index === stuck_at ? new Promise(() => {}) : undefined));
    const http = await bench(t, () => source, { stall_ms: 200 });
    const reply = await http.get();
    assert.equal(reply.status, status);
    assert.equal(reply.whole, status === 504);
    const outcome = await http.outcome();
    assert.equal((outcome.error as RonError).op, 'read');
  }
});

test('the signal ends it: its reason is the answer before headers, a destroyed socket after', async (t) => {
  for (const [stuck_at, status] of [
    [0, 503],
    [1, 200],
  ] as const) {
    const controller = new AbortController();
    const source = tape(pattern(MIB), 64 * KIB, (index) => {
      if (index !== stuck_at) return undefined;
      setTimeout(() => controller.abort(new RonError('draining', 'no more')), 20);
      return new Promise(() => {});
    });
    const http = await bench(t, () => source, { signal: controller.signal, stall_ms: 300 });
    const reply = await http.get();
    assert.equal(reply.status, status);
    if (status === 503) assert.ok(Number(reply.headers['retry-after']) >= 1);
    assert.equal(reply.whole, status === 503);
    const outcome = await http.outcome();
    assert.equal(outcome.result, status === 503 ? 'refused' : 'aborted');
  }
  const gone = new AbortController();
  gone.abort(new RonError('timeout', 'too late'));
  const source = tape(pattern(MIB));
  const http = await bench(t, () => source, { signal: gone.signal });
  assert.equal((await http.get()).status, 504);
  assert.equal(source.pulled, 0);
});

test('nothing piles up on a signal that outlives many answers', async (t) => {
  const { signal } = new AbortController();
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => ((listeners += 1), add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((listeners -= 1), remove(...args));
  const http = await bench(t, () => tape(pattern(100 * KIB)), { signal });
  for (let i = 0; i < 5; i += 1) await http.get();
  for (let i = 0; i < 5; i += 1) await http.outcome();
  assert.equal(listeners, 0);
});

test('a fast source and a fast client leave room for others', async (t) => {
  let turn = 0;
  let running = true;
  const pulls = new Map<number, number>();
  const source = tape(Buffer.alloc(32 * MIB), 16 * KIB, () => void pulls.set(turn, (pulls.get(turn) ?? 0) + 1));
  const http = await bench(t, () => source);
  const tick = (): void => {
    turn += 1;
    if (running) setImmediate(tick);
  };
  const socket = await http.dial();
  socket.resume();
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  tick();
  await http.outcome();
  running = false;
  // The kernel takes several MiB at once here: without a pause they would all be read in one turn of the loop.
  assert.ok(Math.max(...pulls.values()) <= 65, `${Math.max(...pulls.values())} chunks in one turn`);
});
