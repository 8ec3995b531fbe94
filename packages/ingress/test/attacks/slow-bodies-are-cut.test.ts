/** Slow bodies are cut: a buffered one by its total time, a streamed one by progress and average. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { KIB } from '@ron/testkit';
import { AUTHORIZATION, Target, Wire, raw, withstands } from './target.ts';

const LIMIT_MS = 600;
let target: Target;

before(async () => {
  target = await Target.start(`--read_timeout=${LIMIT_MS}ms`, '--server.rate_min=4KiB/s');
});
after(() => target[Symbol.asyncDispose]());

const JSON_LINES = ['Host: localhost', 'Content-Type: application/json'];
const READ_TIMEOUT = { counters: ['io_timeouts_total{op="read"}'] };

/** Sends `piece` every `every_ms` until the connection is closed or `for_ms` have passed. */
async function drip(wire: Wire, piece: string, every_ms: number, for_ms = 20_000): Promise<void> {
  const until_ms = performance.now() + for_ms;
  while (!wire.closed && performance.now() < until_ms) {
    wire.write(piece);
    await wire.until(() => wire.closed || wire.received !== '', every_ms);
    if (wire.received !== '') break;
  }
}

function assertCut(wire: Wire, from_ms: number): void {
  assert.match(wire.received, /^HTTP\/1\.1 408 .*"code":"request_timeout"/s);
  assert.match(wire.received, /^connection: close\r$/im);
  const took_ms = wire.closed_ms! - from_ms;
  assert.ok(took_ms >= LIMIT_MS * 0.9 && took_ms < LIMIT_MS + 5000, `cut after ${took_ms} ms`);
}

test('a buffered body that keeps coming, but exceeds the total time, is cut', async () => {
  await withstands(
    target,
    async () => {
      const bodies = [
        { head: raw('POST /orders HTTP/1.1', [...JSON_LINES, 'Content-Length: 100000']), piece: ' ' },
        { head: raw('POST /orders HTTP/1.1', [...JSON_LINES, 'Transfer-Encoding: chunked']), piece: '1\r\n \r\n' },
        {
          head: raw('POST /raw HTTP/1.1', ['Host: localhost', 'Content-Length: 9', 'Content-Encoding: gzip']),
          piece: '',
        },
        // Enough bytes for the average, so that only the total can cut it.
        { head: raw('POST /raw HTTP/1.1', ['Host: localhost', 'Content-Length: 900000']), piece: 'a'.repeat(1000) },
      ];
      await Promise.all(
        bodies.map(async ({ head, piece }) => {
          const wire = await target.open();
          const from_ms = performance.now();
          wire.write(head);
          await drip(wire, piece, 50);
          await wire.rest();
          // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4]
          assertCut(wire, from_ms);
        }),
      );
    },
    READ_TIMEOUT,
  );
});

test('a streamed body that stops is cut', async () => {
  await withstands(
    target,
    async () => {
      const framings = ['Content-Length: 100000', 'Transfer-Encoding: chunked'];
      await Promise.all(
        framings.map(async (framing) => {
          const wire = await target.open();
          wire.write(raw('PUT /notes/stops HTTP/1.1', ['Host: localhost', AUTHORIZATION, framing], '1\r\na\r\n'));
          const from_ms = performance.now();
          await wire.rest();
          assertCut(wire, from_ms);
        }),
      );
    },
    READ_TIMEOUT,
  );
  assert.equal((await target.send('GET', '/notes/stops')).status, 404, 'nothing of it is kept');
});

test('a streamed body below the minimum average is cut even if it never stops', async () => {
  await withstands(
    target,
    async () => {
      const wire = await target.open();
      wire.write(raw('PUT /notes/crawls HTTP/1.1', ['Host: localhost', AUTHORIZATION, 'Content-Length: 100000']));
      const from_ms = performance.now();
      await drip(wire, 'a', 50);
      await wire.rest();
      assertCut(wire, from_ms);
    },
    READ_TIMEOUT,
  );
});

test('the discarded body of a refused request has the same limits as any other body', async () => {
  await withstands(
    target,
    async () => {
      // Refused by the router, by the guards before it, and by the route.
      const lines = ['POST /none HTTP/1.1', 'POST /x//y HTTP/1.1', 'POST /greeting HTTP/1.1'];
      await Promise.all(
        lines.map(async (line) => {
          const wire = await target.open();
          wire.write(raw(line, ['Host: localhost', 'Content-Length: 60000']));
          assert.ok(await wire.until(() => wire.received !== ''));
          const until_ms = performance.now() + 15_000;
          while (!wire.closed && performance.now() < until_ms) {
            wire.write('a');
            await wire.until(() => wire.closed, 50);
          }
          assert.ok(wire.closed, line);
        }),
      );
      const steady = await target.open();
      steady.write(raw('POST /none HTTP/1.1', ['Host: localhost', 'Content-Length: 60000']));
      for (let n = 0; n < 30; n += 1) {
        steady.write('a'.repeat(2000));
        await steady.until(() => steady.closed, 50);
      }
      steady.write(raw('GET /greeting HTTP/1.1'));
      assert.ok(await steady.until(() => steady.received.includes('200 OK')), 'the connection is still good');
      steady.destroy();
    },
    READ_TIMEOUT,
  );
});

test('a streamed body that is slow but steady goes on for far longer than the limit', async () => {
  const wire = await target.open();
  wire.write(raw('PUT /notes/steady HTTP/1.1', ['Host: localhost', AUTHORIZATION, `Content-Length: ${50 * KIB}`]));
  for (let i = 0; i < 50; i += 1) {
    assert.equal(wire.received, '');
    wire.write('a'.repeat(KIB));
    await wire.until(() => wire.closed, 60);
  }
  assert.ok(await wire.until(() => wire.received.includes('201 Created')), wire.received);
  wire.destroy();
});

test('a hundred slow bodies do not keep others from being served', async () => {
  await withstands(target, async () => {
    const wires = await Promise.all(Array.from({ length: 100 }, () => target.open()));
    for (const wire of wires) wire.write(raw('POST /raw HTTP/1.1', ['Host: localhost', 'Content-Length: 10'], 'a'));
    const from_ms = performance.now();
    for (let i = 0; i < 20; i += 1) assert.equal((await target.send('GET', '/greeting')).status, 200);
    assert.ok(performance.now() - from_ms < 4000);
    await Promise.all(wires.map((wire) => wire.rest()));
  });
});
