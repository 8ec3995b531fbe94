/** Thousands of requests in one packet: the first few are answered, the rest is refused without being parsed. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventually, KIB, MIB } from '@ron/testkit';
import { Target, raw, withstands } from './target.ts';

const FLOOD = 20_000;
const PIPELINED_MAX = 32;
let target: Target;

before(async () => {
  target = await Target.start('--write_timeout=600ms');
  await target.put('small', 'a small note');
});
after(() => target[Symbol.asyncDispose]());

const SERIES = 'rejected_total{reason="inflight_limit"}';
const REFUSED = { counters: [SERIES], growth_bytes_max: 64 * MIB };

test('a few pipelined requests are all answered, in order', async () => {
  const wire = await target.open();
  const paths = ['/notes/small', '/greeting', '/healthz', '/notes/none', '/a//b'];
  wire.write(paths.map((path) => raw(`GET ${path} HTTP/1.1`)).join(''));
  await wire.until(() => wire.statuses.length === paths.length);
  assert.deepEqual(wire.statuses, [200, 200, 200, 404, 400]);
  const order = ['a small note', 'hello', '"ok"', 'not_found', 'bad_path'].map((mark) => wire.received.indexOf(mark));
  assert.deepEqual(
    order,
    order.toSorted((a, b) => a - b),
  );
  assert.ok(!order.includes(-1));
});

test('a flood is answered for a while, refused once, and closed', async () => {
  for (const path of ['/greeting', '/notes/small', '/healthz', '/slow/0', '/nowhere']) {
    await withstands(
      target,
      async () => {
        const wire = await target.open();
        wire.write(raw(`GET ${path} HTTP/1.1`).repeat(FLOOD));
        await wire.rest();
        const { statuses } = wire;
        assert.ok(statuses.length <= PIPELINED_MAX + 2, `${path}: ${statuses.length} answers`);
        assert.equal(statuses.filter((status) => status === 429).length, 1, `${path}: ${statuses.join()}`);
        assert.equal(statuses.at(-1), 429);
        assert.match(wire.received, /"code":"inflight_limit"/);
      },
      REFUSED,
    );
  }
});

test('a flood of invalid requests gets a few refusals, not thousands', async () => {
  const refused = [
    raw('GET /a//b HTTP/1.1'),
    raw('GET /greeting HTTP/1.1', ['Host: evil.example']),
    raw('GET /greeting HTTP/1.1', ['Host: localhost', 'Host: localhost']),
  ];
  for (const request of refused) {
    await withstands(target, async () => {
      const wire = await target.open();
      wire.write(request.repeat(FLOOD));
      await wire.rest();
      assert.ok(wire.statuses.length <= 3, `${wire.statuses.length} answers to ${request}`);
      assert.ok(wire.statuses.every((status) => status >= 400));
    });
  }
});

test('forty floods of scrapes that are not read: health answers, memory stays flat', async () => {
  const attack = async (): Promise<void> => {
    const refused = await target.metric(SERIES);
    const wires = await Promise.all(Array.from({ length: 40 }, () => target.open()));
    for (const wire of wires) {
      wire.socket.pause();
      wire.write(raw('GET /metrics HTTP/1.1').repeat(FLOOD));
    }
    const from_ms = target.cpu_ms;
    assert.equal((await target.send('GET', '/healthz')).status, 200);
    const took_ms = target.cpu_ms - from_ms;
    assert.ok(took_ms < 4000, `the service worked for ${took_ms} ms before it answered a health probe`);
    // The probe is answered before all requests of the floods have started.
    await eventually('they are refused', async () => (await target.metric(SERIES)) > refused);
    for (const wire of wires) wire.destroy();
  };
  await attack(); // Once to warm up: memory that the heap keeps is not a leak.
  await withstands(target, attack, REFUSED);
});

test('after a refusal that closes the connection, later requests are not executed', async () => {
  await withstands(target, async () => {
    const wire = await target.open();
    // The first is refused with its body unread; the second would be executed if the stream were still parsed.
    wire.write(raw('POST /a//b HTTP/1.1', ['Host: localhost', `Content-Length: ${200 * KIB}`]));
    await wire.until(() => wire.received.includes('bad_path'));
    wire.write('a'.repeat(200 * KIB) + raw('GET /notes/small HTTP/1.1').repeat(FLOOD));
    await wire.rest();
    assert.deepEqual(wire.statuses, [400]);
    assert.doesNotMatch(wire.received, /a small note/);
  });
  assert.equal(await target.metric('http_requests_total{route="GET /notes/:name",class="aborted"}'), 0);
});

test('garbage behind a request in flight does not suppress its answer', async () => {
  const garbage = [
    '\0\0\0',
    'GET / HTTP/9.9\r\n\r\n',
    'x'.repeat(20 * KIB),
    raw('GET /greeting HTTP/1.1', ['Host: a', 'bad header']),
  ];
  for (const text of garbage) {
    const wire = await target.open();
    wire.write(raw('GET /slow/200 HTTP/1.1') + text);
    await wire.rest();
    assert.deepEqual(wire.statuses, [200], JSON.stringify(text.slice(0, 40)));
    assert.match(wire.received, /"waited_ms":200/);
  }
});
