/** Slowloris: connections that send their headers byte by byte, or nothing at all, are cut by a total time. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Target, Wire, withstands } from './target.ts';

const LIMIT_MS = 600;
let target: Target;

before(async () => {
  target = await Target.start(`--server.header_timeout=${LIMIT_MS}ms`);
});
after(() => target[Symbol.asyncDispose]());

const COUNTED = { counters: ['io_timeouts_total{op="header"}', 'http_requests_total{route="none",class="4xx"}'] };

/** Sends one byte every 40 ms until the connection is closed. */
async function trickle(wire: Wire, text: string): Promise<void> {
  for (const byte of text) {
    if (wire.closed) return;
    wire.write(byte);
    await wire.until(() => wire.closed, 40);
  }
}

function assertCut(wire: Wire, from_ms: number, limit_ms: number): void {
  assert.ok(wire.closed, 'cut');
  assert.match(wire.received, /^HTTP\/1\.1 408 .*"code":"request_timeout"/s, 'with the reason');
  const took_ms = wire.closed_ms! - from_ms;
  assert.ok(took_ms >= limit_ms * 0.9 && took_ms < limit_ms + 4000, `cut after ${took_ms} ms, not ${limit_ms}`);
}

test('headers that arrive byte by byte are cut at the total time, not after the last byte', async () => {
  await withstands(
    target,
    async () => {
      const from_ms = performance.now();
      const wires = await Promise.all(Array.from({ length: 50 }, () => target.open()));
      const slow = `GET /greeting HTTP/1.1\r\nHost: localhost\r\nX-Slow: ${'a'.repeat(10_000)}`;
      await Promise.all(wires.map((wire) => trickle(wire, slow)));
      // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4]
      for (const wire of wires) assertCut(wire, from_ms, LIMIT_MS);
    },
    COUNTED,
  );
});

test('the timeout starts with the connect: a client that waits first has only the remaining time', async () => {
  const limit_ms = 3000;
  const silent_ms = 2700;
  // Without bytes in RAM Node's parser reads the connection from its start.
  for (const ram of ['1MiB', '0']) {
    await using patient = await Target.start(`--server.header_timeout=${limit_ms}ms`, `--notes.ram_bytes=${ram}`);
    const from_ms = performance.now();
    const wire = await patient.open();
    await wire.until(() => wire.closed, silent_ms);
    await trickle(wire, `GET /greeting HTTP/1.1\r\nHost: localhost\r\nX-Slow: ${'a'.repeat(10_000)}`);
    assertCut(wire, from_ms, limit_ms);
    const took_ms = wire.closed_ms! - from_ms;
    assert.ok(took_ms < silent_ms + limit_ms * 0.9, `cut after ${took_ms} ms`);
  }
});

test('an endless request line, and a header section without its last line, are cut too', async () => {
  await withstands(
    target,
    async () => {
      const from_ms = performance.now();
      const starts = [
        'GET',
        'GET /greeting',
        'GET /greeting HTTP/1.1\r\n',
        'GET /greeting HTTP/1.1\r\nHost: localhost\r\n',
        '\r\n',
        '\r\n\r\n',
      ];
      const wires = await Promise.all(
        starts.map(async (start) => {
          const wire = await target.open();
          wire.write(start);
          await wire.rest();
          return wire;
        }),
      );
      for (const wire of wires) assertCut(wire, from_ms, LIMIT_MS);
    },
    COUNTED,
  );
});

test('a connection that never sends anything is cut too', async () => {
  await withstands(target, async () => {
    const from_ms = performance.now();
    const wires = await Promise.all(Array.from({ length: 20 }, () => target.open()));
    await Promise.all(wires.map((wire) => wire.rest()));
    for (const wire of wires) assert.ok(wire.closed_ms! - from_ms < LIMIT_MS + 4000);
  });
});

test('the second request of a connection has the same timeout', async () => {
  await withstands(
    target,
    async () => {
      const wire = await target.open();
      wire.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n\r\n');
      assert.ok(await wire.until(() => wire.received.includes('hello')));
      wire.received = '';
      const from_ms = performance.now();
      await trickle(wire, `GET /greeting HTTP/1.1\r\nHost: localhost\r\nX-Slow: ${'a'.repeat(10_000)}`);
      assertCut(wire, from_ms, LIMIT_MS);
    },
    COUNTED,
  );
});

test('others are served while 200 slow clients are connected', async () => {
  await withstands(target, async () => {
    const wires = await Promise.all(Array.from({ length: 200 }, () => target.open()));
    for (const wire of wires) wire.write('GET /greeting HTTP/1.1\r\n');
    const from_ms = performance.now();
    for (let i = 0; i < 20; i += 1) assert.equal((await target.send('GET', '/greeting')).status, 200);
    assert.ok(performance.now() - from_ms < 4000);
    await Promise.all(wires.map((wire) => wire.rest()));
  });
});

test('the default is five seconds in total', async () => {
  await using ordinary = await Target.start();
  await withstands(
    ordinary,
    async () => {
      const wire = await ordinary.open();
      const from_ms = performance.now();
      await trickle(wire, `GET /greeting HTTP/1.1\r\nHost: localhost\r\nX-Slow: ${'a'.repeat(10_000)}`);
      assertCut(wire, from_ms, 5000);
    },
    COUNTED,
  );
});
