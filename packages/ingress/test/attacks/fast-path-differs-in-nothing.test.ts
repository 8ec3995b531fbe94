/** Fuzzed reads of the same notes with the fast path on and off: the answers are identical, except for headers that must differ. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { eventually, fuzzRuns, KIB } from '@ron/testkit';
import { AUTHORIZATION, Target, Wire } from './target.ts';

const NOTES = {
  empty: Buffer.alloc(0),
  one: Buffer.from('1'),
  text: Buffer.from('some text '.repeat(50)),
  large: Buffer.alloc(200 * KIB, 'large '),
};

let fast: Target;
let routed: Target;
let tags: string[] = [];

before(async () => {
  [fast, routed] = await Promise.all([Target.start('--notes.ram_bytes=8MiB'), Target.start('--notes.ram_bytes=0')]);
  for (const [name, body] of Object.entries(NOTES)) for (const target of [fast, routed]) await target.put(name, body);
  tags = await Promise.all(
    Object.keys(NOTES).map(async (name) => (await fast.send('HEAD', `/notes/${name}`)).headers.etag!),
  );
});
after(async () => {
  await fast[Symbol.asyncDispose]();
  await routed[Symbol.asyncDispose]();
});

interface Answer {
  readonly status: string;
  readonly headers: string[];
  readonly body: string;
  readonly closed: boolean;
}

/** Sends one request and reads one answer by its length, as a client would. */
async function ask(wire: Wire, request: string, head_only: boolean): Promise<Answer> {
  wire.received = '';
  wire.write(request);
  let end = -1;
  const complete = (): boolean => {
    end = wire.received.indexOf('\r\n\r\n');
    if (end < 0) return false;
    const head = wire.received.slice(0, end);
    const length = Number(/^content-length: (\d+)\r?$/im.exec(head)?.[1] ?? 0);
    const bodiless = head_only || / 304 /.test(head.slice(0, 16));
    return wire.received.length >= end + 4 + (bodiless ? 0 : length);
  };
  await wire.until(complete, 5000);
  assert.ok(end >= 0, `no answer to ${request}`);
  const [status, ...lines] = wire.received.slice(0, end).split('\r\n');
  const closing = lines.some((line) => /^connection: close$/i.test(line));
  if (closing) await wire.rest(5000);
  const body = wire.received.slice(end + 4);
  return {
    status: status!,
    headers: lines.map(comparable).toSorted(),
    body: comparableBody(body),
    closed: wire.closed,
  };
}

/** Generated times and ids differ between answers. */
function comparable(line: string): string {
  const ulid = /^(x-corr-id): [0-9A-HJKMNP-TV-Z]{26}$/i.exec(line);
  return (ulid === null ? line : `${ulid[1]}: (made up)`)
    .replace(/^(date|retry-after): .*/i, '$1')
    .replace(/^([^:]+)/, (name) => name.toLowerCase());
}

function comparableBody(body: string): string {
  return body.replace(/"corr_id":"[0-9A-HJKMNP-TV-Z]{26}"/, '"corr_id":"(made up)"');
}

const anyCase = (name: string): fc.Arbitrary<string> =>
  fc.nat(2 ** 20).map((bits) =>
    name
      .split('')
      .map((letter, i) => ((bits >> i) & 1 ? letter.toUpperCase() : letter.toLowerCase()))
      .join(''),
  );

const number = fc.oneof(fc.nat(600), fc.nat(300 * KIB), fc.constantFrom(0, 1, 499, 500, 204_799, 204_800, 2 ** 53));
const range = fc.oneof(
  fc.tuple(number, number).map(([a, b]) => `bytes=${a}-${b}`),
  number.map((a) => `bytes=${a}-`),
  number.map((a) => `bytes=-${a}`),
  fc.tuple(number, number).map(([a, b]) => `bytes=${a}-${a},${b}-${b}`),
  fc.constantFrom(
    'bytes=',
    'bytes=-',
    'lines=0-1',
    'BYTES=0-0',
    'bytes=0-0,',
    'bytes= 0-0',
    '',
    'x',
    `bytes=0-${'9'.repeat(50)}`,
  ),
);
const known = fc.nat(3).map((i) => tags[i]!);
const tag = fc.oneof(
  known,
  known,
  known.map((t) => `W/${t}`),
  fc.constantFrom('*', '"x"', 'W/"x"', '""', 'x', '', '"unclosed', '"a", "b"'),
);
const tag_list = fc.oneof(
  tag,
  fc.array(tag, { minLength: 2, maxLength: 4 }).map((list) => list.join(', ')),
);
const date = fc.constantFrom('Sun, 06 Nov 1994 08:49:37 GMT', 'Fri, 01 Jan 2100 00:00:00 GMT', 'yesterday', '');

const line = (name: string, value: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(anyCase(name), fc.constantFrom(': ', ':', ':\t ', ':   '), value, fc.constantFrom('', ' ', '\t'))
    .map((parts) => parts.join(''));

const header = fc.oneof(
  line('range', range),
  line('range', range),
  line('if-none-match', tag_list),
  line('if-none-match', tag_list),
  line('if-match', tag_list),
  line('if-range', fc.oneof(tag, date)),
  line('if-modified-since', date),
  line('if-unmodified-since', date),
  line('x-corr-id', fc.constantFrom('mine', 'a'.repeat(64), 'a'.repeat(65), 'not fine', '<x>', '')),
  line('connection', fc.constantFrom('close', 'keep-alive', 'Keep-Alive', 'CLOSE', 'close, keep-alive', 'x')),
  line('accept-encoding', fc.constantFrom('gzip', 'identity', '*')),
  line('request-timeout', fc.constantFrom('1', '2.5', 'x', '-1')),
  line('content-length', fc.constantFrom('0')),
  line('expect', fc.constantFrom('100-continue', '100-Continue')),
  line('upgrade', fc.constantFrom('h2c')),
  line('origin', fc.constantFrom('https://evil.example')),
  fc.constant(AUTHORIZATION),
  fc.constant('Authorization: Bearer junk'),
  fc.constant('Host: localhost'),
  fc.constant('X-Forwarded-For: 1.2.3.4'),
);

const method = fc.constantFrom('GET', 'GET', 'GET', 'HEAD', 'HEAD', 'POST', 'DELETE', 'OPTIONS', 'PATCH');
const path = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...Object.keys(NOTES)).map((name) => `/notes/${name}`) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '/notes/none',
      '/notes/%74ext',
      '/notes/text?x=1',
      '/notes/text?',
      '/notes/text/',
      '/notes//text',
      '/notes/../text',
      '/NOTES/text',
      '/notes/text#x',
      '/notes/TEXT',
    ),
  },
);
const request = fc
  .record({
    verb: method,
    path,
    version: fc.constantFrom('HTTP/1.1', 'HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0'),
    headers: fc.array(header, { maxLength: 5 }),
    body: fc.constantFrom('', '', '', '', '', 'abc'),
  })
  .map((parts) => {
    const framing = parts.body === '' ? [] : [`Content-Length: ${parts.body.length}`];
    const lines = [`${parts.verb} ${parts.path} ${parts.version}`, 'Host: localhost', ...framing, ...parts.headers];
    return { verb: parts.verb, text: `${lines.join('\r\n')}\r\n\r\n${parts.body}` };
  });

test('the answers are the same with the fast path on and off', async () => {
  let answered = 0;
  const statuses = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 6 }), async (requests) => {
      const wires = [await fast.open(), await routed.open()] as const;
      for (const { verb, text } of requests) {
        const [a, b] = await Promise.all(wires.map((wire) => ask(wire, text, verb === 'HEAD')));
        assert.deepEqual(a, b, text);
        statuses.add(a!.status);
        answered += 1;
        if (a!.closed) break;
      }
      for (const wire of wires) wire.destroy();
    }),
    fuzzRuns(400),
  );
  assert.ok(answered > 400);
  for (const status of ['200', '206', '304', '400', '404', '412', '416'])
    assert.ok(
      [...statuses].some((one) => one.includes(` ${status} `)),
      `nothing was answered with ${status}: ${[...statuses].join('; ')}`,
    );
});

test('the fast path was active: with every worker busy, only bytes in RAM are answered', async () => {
  for (const target of [fast, routed]) {
    const busy = Array.from({ length: 4 }, () => target.send('GET', '/slow/1200'));
    await eventually('all workers busy', async () => (await target.metric('http_requests_inflight')) === 4);
    const from_ms = performance.now();
    assert.equal((await target.send('GET', '/notes/text')).text, String(NOTES.text));
    const took_ms = performance.now() - from_ms;
    await Promise.all(busy);
    assert.ok(target === fast ? took_ms < 700 : took_ms > 700, `${took_ms} ms`);
  }
});
