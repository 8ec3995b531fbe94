/** Clients that read slowly but above the minimum rate get the whole answer. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { eventually, KIB, MIB } from '@ron/testkit';
import { Target, raw } from './target.ts';
import type { Wire } from './target.ts';

/** More than the buffers of both kernels hold, so that the server has to wait for the client. */
const LARGE_BYTES = 24 * MIB;
const LIMITS = { rate_bytes_per_s: 256 * KIB, object_bytes: 6 * MIB };
const REQUEST = ['Host: localhost', 'Connection: close'];

/** A client that reads `rate_bytes_per_s` on average, in pieces of at most 64 KiB. */
class Reader {
  taken_bytes = 0;
  readonly #wire: Wire;

  constructor(wire: Wire, rate_bytes_per_s: number) {
    this.#wire = wire;
    const from_ms = performance.now();
    wire.socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
      this.taken_bytes += chunk.length;
      wire.socket.pause();
      const due_ms = from_ms + (this.taken_bytes / rate_bytes_per_s) * 1000;
      setTimeout(() => wire.socket.resume(), Math.max(0, due_ms - performance.now())).unref();
    });
    wire.write(raw('GET /notes/large HTTP/1.1', REQUEST));
  }

  /** Everything received until the connection closed. */
  async all(): Promise<number> {
    await this.#wire.rest(120_000);
    return this.taken_bytes;
  }
}

describe('slow readers', { concurrency: true }, () => {
  let defaults: Target;
  let scaled: Target;
  before(async () => {
    defaults = await Target.start();
    await defaults.put('large', Buffer.alloc(LARGE_BYTES));
    scaled = await Target.start('--write_timeout=300ms', `--server.rate_min=${LIMITS.rate_bytes_per_s / KIB}KiB/s`);
    await scaled.put('large', Buffer.alloc(LIMITS.object_bytes));
  });
  after(async () => {
    await defaults[Symbol.asyncDispose]();
    await scaled[Symbol.asyncDispose]();
  });

  test('with the default limits no reader is cut at 2, 16, 128 or 300 KiB/s, nor is curl --limit-rate', async () => {
    const url = `${defaults.url}/notes/large`;
    const curls = hasCurl()
      ? ['2k', '16k', '128k'].map((rate) => spawn('curl', ['-s', '--limit-rate', rate, url]))
      : [];
    try {
      for (const curl of curls) curl.stdout.resume();
      const readers: Reader[] = [];
      for (const kib of [2, 16, 128, 300]) readers.push(new Reader(await defaults.open(), kib * KIB));
      // By then the server has waited for the slowest client for twice the no-progress limit.
      await eventually('the fastest took 3.5 MiB', () => readers[3]!.taken_bytes >= 3.5 * MIB, 60_000);
      // A client that was cut still reads from its own buffer, so the server's counter decides.
      assert.equal(await defaults.metric('io_timeouts_total{op="write"}'), 0);
      for (const curl of curls) assert.equal(curl.exitCode, null, curl.spawnargs.join(' '));
    } finally {
      for (const curl of curls) curl.kill();
    }
  });

  for (const times of [2, 8])
    test(`a reader at ${times} times the minimum rate gets the whole answer`, async () => {
      const reader = new Reader(await scaled.open(), LIMITS.rate_bytes_per_s * times);
      assert.ok((await reader.all()) > LIMITS.object_bytes, `cut after ${reader.taken_bytes} bytes`);
    });

  test('a reader at a quarter of the minimum rate is cut', async () => {
    const reader = new Reader(await scaled.open(), LIMITS.rate_bytes_per_s / 4);
    const series = 'io_timeouts_total{op="write"}';
    await eventually('cut', async () => (await scaled.metric(series)) === 1, 60_000);
    assert.ok(reader.taken_bytes < LIMITS.object_bytes);
  });
});

function hasCurl(): boolean {
  try {
    execFileSync('curl', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
