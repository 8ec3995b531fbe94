/** Every path to an answer sends a content coding only to clients that accept it, and states the age of a stored copy. */
import assert from 'node:assert/strict';
import { Server } from 'node:http';
import { after, before, describe, mock, test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { bytes, createIngress, FastEntry, route } from '@ron/ingress';
import type { Ingress, RamSource } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { RonError } from '@ron/kernel';
import { Type } from '@ron/ingress';
import { metricIn, RawClient } from '@ron/testkit/service';

const PLAIN = Buffer.from('a text that is long enough to be worth compressing. '.repeat(20));
const GZIP = gzipSync(PLAIN);
const BORN_MS = Date.now() - 3_600_000;

function ram(body: Buffer, about: Partial<RamSource>): RamSource {
  return {
    size: body.length,
    media_type: 'text/plain',
    ram: [body],
    read: () => assert.fail('is in RAM'),
    etag: `"${about.encoding ?? 'plain'}"`,
    ...about,
  };
}

const gzip = ram(GZIP, { encoding: 'gzip' });
const SOURCES: Readonly<Record<string, RamSource>> = {
  both: ram(PLAIN, { variants: [gzip], headers: { Vary: 'Origin' } }),
  gzip: ram(GZIP, { encoding: 'gzip' }),
  plain: ram(PLAIN, {}),
  aged: ram(PLAIN, { born_ms: BORN_MS }),
  decoded: ram(PLAIN, {}),
};

function sourceOf(name: string): RamSource {
  const source = SOURCES[name];
  if (source === undefined) throw new RonError('not_found', 'no such object');
  return source;
}

interface Way {
  readonly name: string;
  /** Whether the fast path has the objects. */
  readonly fast: boolean;
  /** Whether requests go through Node's parser. The socket fast path does not recognise this header. */
  readonly parsed: boolean;
}

const WAYS: readonly Way[] = [
  { name: 'routed', fast: false, parsed: true },
  { name: 'fast path', fast: true, parsed: true },
  { name: 'before the parser', fast: true, parsed: false },
];
const PARSED = 'X-Other: 1';

interface Got {
  readonly status: number;
  readonly head: string;
  readonly body: Buffer;
  /** The value of a header; undefined if it is absent. */
  header(name: string): string | undefined;
}

/** One request on a connection that stays open until the answer has arrived. */
async function request(port: number, method: string, path: string, lines: readonly string[]): Promise<Got> {
  const client = await RawClient.open(port);
  client.write([`${method} ${path} HTTP/1.1`, 'Host: localhost', ...lines, '', ''].join('\r\n'));
  const head = (await client.until(/^[^]*?\r\n\r\n/))[0];
  const header = (name: string): string | undefined => new RegExp(`^${name}: (.*)\r$`, 'im').exec(head)?.[1];
  const status = Number(head.split(' ')[1]);
  const length = method === 'HEAD' || status === 304 ? 0 : Number(header('content-length'));
  await client.until(new RegExp(`^[^]{${head.length + length}}`));
  client.destroy();
  return { status, head, header, body: Buffer.from(client.received.slice(head.length), 'latin1') };
}

interface Subject {
  readonly metrics: Metrics;
  readonly ask: (method: string, name: string, ...lines: string[]) => Promise<Got>;
  readonly get: (name: string, accept?: string, ...lines: string[]) => Promise<Got>;
}

/** Starts a listener for the tests of a suite, which takes one path to its answers. */
function listenerFor(way: Way): Subject {
  let ingress: Ingress;
  const metrics = new Metrics('x');
  // In RAM as gzip; the route decodes it.
  const decoded = ['/x/decoded', new FastEntry(ram(GZIP, { encoding: 'gzip' }))] as const;
  const entries = new Map<string, FastEntry>(
    Object.entries(SOURCES).map(([name, source]) => [`/x/${name}`, new FastEntry(source)] as const),
  );
  entries.set(...decoded);

  before(async () => {
    const schema = { params: Type.Object({ name: Type.String() }) };
    const base = { scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
    const row = route({
      ...base,
      method: 'GET',
      path: '/x/:name',
      schema,
      handler: ({ params }) => bytes(sourceOf(params.name)),
    });
    ingress = await createIngress({
      service: 'x',
      version: '0',
      metrics,
      routes: [row],
      ...(way.fast && { fast: { route: 'GET /x/:name', lookup: (target: string) => entries.get(target) } }),
    });
    await ingress.listen();
  });
  after(() => ingress[Symbol.asyncDispose]());

  const ask = (method: string, name: string, ...lines: string[]): Promise<Got> =>
    request(Number(new URL(ingress.url).port), method, `/x/${name}`, way.parsed ? [PARSED, ...lines] : lines);
  const get = (name: string, accept?: string, ...lines: string[]): Promise<Got> =>
    ask('GET', name, ...(accept === undefined ? [] : [`Accept-Encoding: ${accept}`]), ...lines);
  return { metrics, ask, get };
}

function selectionTests(way: Way, { get }: Subject): void {
  test('the requests take this path', async () => {
    const emit = mock.method(Server.prototype, 'emit');
    await get('both', 'gzip');
    await get('aged', undefined, 'If-None-Match: "plain"');
    const parsed = emit.mock.calls.filter((call) => call.arguments[0] === 'request').length;
    emit.mock.restore();
    assert.equal(parsed, way.parsed ? 2 : 0);
  });

  for (const accept of [undefined, '', 'identity', 'br', 'gzip;q=0', 'gzip;q=0.1, identity;q=0.5', '*;q=0, identity'])
    test(`${accept ?? 'no header'}: the bytes without a coding`, async () => {
      const reply = await get('both', accept);
      assert.equal(reply.status, 200);
      assert.equal(reply.header('content-encoding'), undefined);
      assert.equal(reply.header('etag'), '"plain"');
      assert.equal(reply.header('vary'), 'Origin, Accept-Encoding');
      assert.deepEqual(reply.body, PLAIN);
    });

  for (const accept of ['gzip', 'br, gzip', '*, identity;q=0.5', 'identity;q=0, gzip', 'x-gzip'])
    test(`${accept}: gzip`, async () => {
      const reply = await get('both', accept);
      assert.equal(reply.status, 200);
      assert.equal(reply.header('content-encoding'), 'gzip');
      assert.equal(reply.header('etag'), '"gzip"');
      assert.equal(reply.header('vary'), 'Accept-Encoding');
      assert.deepEqual(gunzipSync(reply.body), PLAIN);
    });

  for (const accept of ['identity;q=0', '*;q=0', 'br, identity;q=0'])
    test(`${accept}: 406`, async () => {
      const reply = await get('both', accept);
      assert.equal(reply.status, 406);
      assert.equal(JSON.parse(reply.body.toString()).code, 'not_acceptable');
    });

  test('an object that is stored as gzip only', async () => {
    const coded = await get('gzip', 'gzip');
    assert.equal(coded.header('content-encoding'), 'gzip');
    assert.equal(coded.header('vary'), 'Accept-Encoding');
    assert.equal((await get('gzip', 'identity')).status, 406);
    assert.equal((await get('gzip', 'br')).status, 406);
    assert.equal((await get('gzip')).status, 200, 'RFC 9110: without the header any coding is acceptable');
  });

  test('a client without Accept-Encoding gets the answer of the route for a coded object', async () => {
    const reply = await get('decoded');
    assert.equal(reply.header('content-encoding'), undefined);
    assert.deepEqual(reply.body, PLAIN);
    if (way.fast) assert.equal((await get('decoded', 'gzip')).header('content-encoding'), 'gzip');
  });

  test('an object without codings is not negotiated', async () => {
    const reply = await get('plain', 'identity;q=0, gzip');
    assert.equal(reply.status, 200);
    assert.equal(reply.header('vary'), undefined);
  });
}

function representationTests({ ask, get, metrics }: Subject): void {
  test('conditions are compared with the tag of the selected coding', async () => {
    const matched = await get('both', 'gzip', 'If-None-Match: "gzip"');
    assert.equal(matched.status, 304);
    assert.equal(matched.header('vary'), 'Accept-Encoding');
    assert.equal(matched.header('content-encoding'), undefined);
    assert.equal((await get('both', 'gzip', 'If-None-Match: "plain"')).status, 200);
    assert.equal((await get('both', 'identity', 'If-None-Match: "plain"')).status, 304);
  });

  test('a range applies to the selected coding', async () => {
    const reply = await get('both', 'gzip', 'Range: bytes=2-5');
    assert.equal(reply.status, 206);
    assert.deepEqual(reply.body, GZIP.subarray(2, 6));
  });

  test('repeated header lines are read together', async () => {
    const reply = await ask('GET', 'both', 'Accept-Encoding: identity;q=0', 'Accept-Encoding: gzip');
    assert.equal(reply.header('content-encoding'), 'gzip');
  });

  test('Age is the age of the copy, with 304 and HEAD too', async () => {
    for (const reply of [
      await get('aged'),
      await get('aged', undefined, 'If-None-Match: "plain"'),
      await ask('HEAD', 'aged'),
    ]) {
      const age_s = Number(reply.header('age'));
      assert.ok(age_s >= 3600 && age_s <= (Date.now() - BORN_MS) / 1000 + 1, `${reply.header('age')}`);
    }
    assert.equal((await get('plain')).header('age'), undefined);
  });

  test('refusals are counted', async () => {
    const series = 'rejected_total{reason="not_acceptable"}';
    const had = metricIn(await metrics.text(), series);
    await get('both', '*;q=0');
    assert.equal(metricIn(await metrics.text(), series), had + 1);
  });
}

for (const way of WAYS)
  describe(way.name, () => {
    const subject = listenerFor(way);
    selectionTests(way, subject);
    representationTests(subject);
  });
