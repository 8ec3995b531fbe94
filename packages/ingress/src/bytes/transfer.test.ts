/** A source or a client that fails, stalls or leaves never produces an answer that looks whole, and the source is closed. */
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { RonError, sched } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { byteBench, KIB, MIB, pattern, tape } from '../../test/bytes/byte-bench.ts';
import type { ByteSource } from './bytes.ts';
import { BATCHES_MAX } from './transfer.ts';
import { CREDIT_BYTES_MAX } from '../connection/send-watch.ts';
import type { TransferLimits } from '../connection/transfer-watch.ts';

test('a source that fails before its first chunk gives a clean problem, and is closed', async (t) => {
  const source = tape(pattern(MIB), 64 * KIB, () => {
    throw new RonError('integrity', 'chunk 0 does not match');
  });
  const http = await byteBench(t, () => source);
  const reply = await http.get();
  assert.equal(reply.status, 500);
  assert.equal(JSON.parse(String(reply.body)).code, 'integrity');
  assert.equal(reply.headers['etag'], undefined, 'no header of the object is sent');
  assert.equal(reply.whole, true);
  assert.equal(source.closed, 1);
});

test('a source that fails later has its connection destroyed: never a clean end', async (t) => {
  const source = tape(pattern(MIB), 64 * KIB, (index) => {
    if (index === 3) throw new RonError('integrity', 'chunk 3 does not match');
  });
  const http = await byteBench(t, () => source);
  const reply = await http.get();
  assert.equal(reply.status, 200);
  assert.equal(reply.whole, false);
  assert.ok(reply.body.length <= 3 * 64 * KIB);
  assert.equal(source.closed, 1);
  const outcome = await http.outcome();
  assert.equal(outcome.result, 'source');
  assert.equal((outcome.error as RonError).code, 'integrity');
});

test('a source that yields too little, too much or nothing never produces a complete answer', async (t) => {
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
  const http = await byteBench(t, () => ({
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

test('one chunk is held: the next is requested once the kernel has accepted the last', async (t) => {
  let socket: Socket | undefined;
  let held_bytes_max = 0;
  const source = tape(pattern(4 * MIB), 64 * KIB, () => {
    held_bytes_max = Math.max(held_bytes_max, socket?.writableLength ?? 0);
  });
  const http = await byteBench(t, (req) => ((socket = req.socket), source));
  const reply = await http.get();
  assert.equal(reply.body.length, 4 * MIB);
  assert.equal(held_bytes_max, 0);
});

test('the connections of one address together request a few batches per event loop iteration', async (t) => {
  const body = pattern(4 * MIB);
  let batches = 0;
  const http = await byteBench(t, () =>
    tape(body, 64 * KIB, () => {
      batches += 1;
    }),
  );
  let batches_max = 0;
  const stop = new AbortController();
  const count = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      batches = 0;
      await sched.pause('test');
      batches_max = Math.max(batches_max, batches);
    }
  };
  const counting = count();
  const replies = await Promise.all(Array.from({ length: 16 }, () => http.get()));
  stop.abort();
  await counting;
  for (const reply of replies) assert.ok(reply.body.equals(body));
  // Twice the share: a flood begins in the middle of an iteration, and so does the count.
  assert.ok(batches_max <= 2 * BATCHES_MAX, `${batches_max} batches`);
});

/** A client that never reads acknowledges its receive buffer, and then has this long. */
const UNREAD: TransferLimits = { stall_ms: 300, rate_bytes_per_s_min: MIB };

test('a client that stops reading is cut; the source is closed and little was read', async (t) => {
  const source = tape(Buffer.alloc(64 * MIB));
  const rate_bytes_per_s_min = 128 * KIB;
  const http = await byteBench(t, () => source, {}, { ...UNREAD, rate_bytes_per_s_min });
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
    const http = await byteBench(t, () => ({ ...tape(ram), ram: [ram] }), {}, UNREAD);
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
    const http = await byteBench(t, () => source, {}, { stall_ms, rate_bytes_per_s_min });
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
  const http = await byteBench(t, () => source);
  const socket = await http.dial();
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  socket.once('data', () => void socket.destroy());
  assert.equal((await http.outcome()).result, 'client_gone');
  assert.equal(base.closed, 1);
  assert.equal(seen!.aborted, true);
});

test('a client that leaves before the bytes are found ends the work', async (t) => {
  const found = tape(pattern(MIB));
  const http = await byteBench(t, async (req) => {
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

test('a stalled source is cut after stall_ms: 504 before headers, a destroyed socket after', async (t) => {
  for (const [stuck_at, status] of [
    [0, 504],
    [1, 200],
  ] as const) {
    const source = tape(pattern(MIB), 64 * KIB, (index) => (index === stuck_at ? new Promise(() => {}) : undefined));
    const http = await byteBench(t, () => source, { stall_ms: 200 });
    const reply = await http.get();
    assert.equal(reply.status, status);
    assert.equal(reply.whole, status === 504);
    const outcome = await http.outcome();
    assert.equal((outcome.error as RonError).op, 'read');
  }
});

test('an abort ends the transfer: its reason is the answer before headers, a destroyed socket after', async (t) => {
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
    const http = await byteBench(t, () => source, { signal: controller.signal, stall_ms: 300 });
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
  const http = await byteBench(t, () => source, { signal: gone.signal });
  assert.equal((await http.get()).status, 504);
  assert.equal(source.pulled, 0);
});

test('a signal that outlives many answers accumulates no listeners', async (t) => {
  const { signal } = new AbortController();
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => ((listeners += 1), add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((listeners -= 1), remove(...args));
  const http = await byteBench(t, () => tape(pattern(100 * KIB)), { signal });
  for (let i = 0; i < 5; i += 1) await http.get();
  for (let i = 0; i < 5; i += 1) await http.outcome();
  assert.equal(listeners, 0);
});

test('a fast source and a fast client do not starve others', async (t) => {
  let turn = 0;
  let running = true;
  const pulls = new Map<number, number>();
  const source = tape(Buffer.alloc(32 * MIB), 16 * KIB, () => void pulls.set(turn, (pulls.get(turn) ?? 0) + 1));
  const http = await byteBench(t, () => source);
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
  // The kernel accepts several MiB at once here: without a pause they would all be read in one event loop iteration.
  assert.ok(Math.max(...pulls.values()) <= 65, `${Math.max(...pulls.values())} chunks in one iteration`);
});
