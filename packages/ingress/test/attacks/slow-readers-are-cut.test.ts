/** Clients that request much and read little hold one chunk each, and are cut. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventually, KIB, MIB } from '@ron/testkit';
import { Target, raw, withstands } from './target.ts';

const LIMIT_MS = 600;
const RATE_BYTES_PER_S = 64 * KIB;
/** The last byte that a client acknowledges, plus the credit that it can have earned, plus some time for a busy machine. */
const CUT_MS_MAX = LIMIT_MS + (MIB / RATE_BYTES_PER_S) * 1000 + 8000;
const LARGE_BYTES = 32 * MIB;
let target: Target;

before(async () => {
  target = await Target.start(
    `--write_timeout=${LIMIT_MS}ms`,
    '--notes.ram_bytes=9MiB',
    `--server.rate_min=${RATE_BYTES_PER_S}B/s`,
  );
  await target.put('large', Buffer.alloc(LARGE_BYTES, 'large'));
  await target.put('small', Buffer.alloc(200 * KIB, 'small'));
  await target.put('hot', Buffer.alloc(8 * MIB, 'hot'));
});
after(() => target[Symbol.asyncDispose]());

const CUT = { counters: ['io_timeouts_total{op="write"}'], growth_bytes_max: 48 * MIB };

/** `count` clients request and read nothing; all must be cut within the limit, and none before the no-progress limit. */
async function starve(count: number, request: string, answer_bytes: number): Promise<void> {
  const idle = await target.settled();
  const wires = await Promise.all(Array.from({ length: count }, () => target.open()));
  await eventually('all connected', () => target.descriptors >= idle + count);
  const from_ms = performance.now();
  for (const wire of wires) {
    wire.socket.pause();
    wire.write(request);
  }
  await eventually('some cut', () => target.descriptors < idle + count, CUT_MS_MAX);
  const first_ms = performance.now() - from_ms;
  // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4]
  await eventually('all cut', () => target.descriptors <= idle, CUT_MS_MAX);
  assert.ok(first_ms >= LIMIT_MS * 0.9, `the first was cut after ${first_ms} ms`);
  for (const wire of wires) {
    wire.socket.resume();
    assert.ok((await wire.rest()).length < answer_bytes, 'a cut answer is not whole');
  }
}

test('a client that reads nothing of a large answer is cut', async () => {
  await withstands(target, () => starve(60, raw('GET /notes/large HTTP/1.1'), LARGE_BYTES), CUT);
});

test('a client that reads nothing of an answer from RAM is cut', async () => {
  await withstands(target, () => starve(60, raw('GET /notes/hot HTTP/1.1'), 8 * MIB), CUT);
});

test('a client that pipelines small requests until the buffers are full is cut', async () => {
  const answers_bytes = 31 * 200 * KIB;
  await withstands(target, () => starve(30, raw('GET /notes/small HTTP/1.1').repeat(31), answers_bytes), CUT);
});

/** Reads with a pause after each piece of at most 64 KiB. Returns the number of bytes. */
async function sip(from: Target, pause_ms: number): Promise<number> {
  const wire = await from.open();
  let taken_bytes = 0;
  wire.socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
    taken_bytes += chunk.length;
    wire.socket.pause();
    setTimeout(() => wire.socket.resume(), pause_ms);
  });
  wire.write(raw('GET /notes/large HTTP/1.1', ['Host: localhost', 'Connection: close']));
  await wire.rest(60_000);
  return taken_bytes;
}

test('a client that never stops, but reads too little on average, is cut', async () => {
  await using impatient = await Target.start(`--write_timeout=${LIMIT_MS}ms`, '--server.rate_min=1000MiB/s');
  await impatient.put('large', Buffer.alloc(LARGE_BYTES));
  await withstands(impatient, async () => assert.ok((await sip(impatient, 20)) < LARGE_BYTES), CUT);
});

test('a slow client above the minimum rate gets the whole answer', async () => {
  assert.ok((await sip(target, 2)) > LARGE_BYTES);
});
