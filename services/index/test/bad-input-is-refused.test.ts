/** Invalid requests, accidental or malicious: each gets a clear problem, the service keeps working, and memory stays flat. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { Agent } from 'node:http';
import { after, before, suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { encode } from 'cborg';
import fc from 'fast-check';
import { addressToCid, formatAddress } from '@ron/proto';
import { signedNameBytes } from '@ron/proto/names';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { AMNESIA, startService, type TestIndex } from './support.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 60);
const ADDRESS = formatAddress(new Uint8Array(32).fill(7));
const LIFE_S = 86_400;
const MIB = 1024 * 1024;

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const KEY = publicKey.export({ type: 'spki', format: 'der' }).subarray(-32);
const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
/** Bytes with a valid signature of the key, even if they are not a record. */
const signedBody = (record: Uint8Array): { record: string; signature: string } => ({
  record: base64url(record),
  signature: base64url(sign(null, signedNameBytes(record), privateKey)),
});

suite('bad input', () => {
  let index: TestIndex;
  let headers: Record<string, string>;
  const agent = new Agent({ keepAlive: true, maxSockets: 4 });
  before(async () => {
    index = await startService({ flags: AMNESIA });
    headers = { ...(await index.allow()), 'content-type': 'application/json' };
  });
  after(async () => {
    agent.destroy();
    await index[Symbol.asyncDispose]();
  });
  const get = (path: string): Promise<Reply> => index.send('GET', path, { headers, agent });
  const send = (method: string, path: string, body: string | Uint8Array, more = {}): Promise<Reply> =>
    index.send(method, path, { headers: { ...headers, ...more }, body, agent });

  test('malformed addresses and names are refused with the reason', async () => {
    const hex = '0'.repeat(64);
    const cases: [string, RegExp][] = [
      [`/resolve/b3:${hex.slice(1)}`, /63 characters/],
      [`/resolve/b3:${hex}0`, /65 characters|longer|characters/],
      [`/resolve/b3:${'A'.repeat(64)}`, /upper case/],
      [`/resolve/b3:${'g'.repeat(64)}`, /not a hex digit/],
      [`/resolve/sha256:${hex}`, /b3:|target/],
      [`/resolve/${hex}`, /b3:|target/],
      ['/resolve/', /./],
      ['/resolve/name:', /empty/],
      ['/resolve/name:Docs', /upper case/],
      ['/resolve/name:a//b', /empty/],
      ['/resolve/name:caf%C3%A9', /./],
      [`/resolve/name:${'a'.repeat(64)}`, /63 characters/],
      [`/resolve/name:${'a/'.repeat(200)}a`, /255|characters/],
      ['/resolve/name:a@12', /64 lower-case hex/],
      [`/resolve/b3:${hex}?fresh=2`, /fresh/],
      [`/resolve/b3:${hex}?colour=red`, /colour/],
      [`/providers/b3:${hex.slice(1)}`, /characters|address/],
      [`/providers/b3:${hex}?limit=0`, /limit/],
      [`/providers/b3:${hex}?limit=33`, /limit/],
      [`/providers/b3:${hex}?min_freshness=-1`, /min_freshness/],
    ];
    for (const [path, reason] of cases) {
      const reply = await get(path);
      assert.equal(reply.status, 400, `${path}: ${reply.text}`);
      assert.match(reply.text, reason, path);
    }
  });

  test('CIDs of other kinds get 422, and none known is an empty list', async () => {
    const cid = addressToCid(ADDRESS);
    assert.equal((await get(`/routing/v1/providers/${cid}`)).status, 200);
    for (const wrong of [
      'QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG',
      'bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy',
      cid.toUpperCase(),
      cid.slice(0, -1),
      'x',
    ]) {
      assertRefusal(await get(`/routing/v1/providers/${wrong}`), 422, 'unprocessable');
    }
  });

  test('records that are signed but break a rule are refused, and a gap or a foreign start is a conflict', async () => {
    const now_s = Math.floor(Date.now() / 1000);
    const fields = (changes: [unknown, unknown][] = []): Map<unknown, unknown> =>
      new Map<unknown, unknown>([
        [1, Uint8Array.from(KEY)],
        [2, 'signed/x'],
        [4, 1],
        [5, now_s + LIFE_S],
        [6, 60],
        ...changes,
      ]);
    const put = (record: Uint8Array): Promise<Reply> =>
      send('PUT', '/names/signed/x', JSON.stringify(signedBody(record)));
    const valid = encode(fields());
    const refused: Record<string, Uint8Array> = {
      'seq 0': encode(fields([[4, 0]])),
      'seq 2^53': encode(fields([[4, 2n ** 53n]])),
      'seq 2^64 - 1': encode(fields([[4, 2n ** 64n - 1n]])),
      'negative seq': encode(fields([[4, -1]])),
      'seq as float': encode(fields([[4, 1.5]])),
      expired: encode(fields([[5, now_s - 1]])),
      'beyond 2 years': encode(fields([[5, now_s + 732 * LIFE_S]])),
      'not_after beyond all clocks': encode(fields([[5, Number.MAX_SAFE_INTEGER]])),
      'ttl too long': encode(fields([[6, 86_401]])),
      'unknown field': encode(fields([[9, 1]])),
      'label of another path': encode(fields([[2, 'signed/y']])),
      'label in upper case': encode(fields([[2, 'Signed']])),
      'Unicode label': encode(fields([[2, 'sígned']])),
      'duplicated key': Buffer.concat([Buffer.from([0xa6]), valid.subarray(1), Buffer.from([6, 0x18, 60])]),
      'indefinite length': Buffer.concat([Buffer.from([0xbf]), valid.subarray(1), Buffer.from([0xff])]),
      oversized: encode(fields([[9, 'x'.repeat(1100)]])),
      'an array': encode([1, 2, 3]),
      'nested arrays': new Uint8Array(1024).fill(0x81),
      nothing: new Uint8Array(0),
    };
    for (const [what, record] of Object.entries(refused)) {
      const reply = await put(record);
      assert.equal(reply.status, 400, `${what}: ${reply.text}`);
      assert.equal(reply.problem?.code, 'validation', what);
    }
    const previous = new Uint8Array(32);
    const gap = encode(
      fields([
        [4, 7],
        [7, previous],
      ]),
    );
    assertRefusal(await put(gap), 409, 'conflict');
    assert.equal((await put(valid)).status, 201, 'the rest of the record was valid');
    assertRefusal(await put(gap), 409, 'conflict');
    const foreign = encode(
      fields([
        [4, 2],
        [7, previous],
      ]),
    );
    assertRefusal(await put(foreign), 409, 'conflict');
  });

  test('an announce of 1 000 000 entries, with URLs, or of other shapes is refused, and memory stays flat', async () => {
    const entry = { address: ADDRESS, size: 1, media_type: 'text/plain' };
    const refused: [unknown, number][] = [
      [{ entries: Array.from({ length: 1001 }, () => entry) }, 400],
      [{ entries: [{ ...entry, url: 'http://127.0.0.1/' }] }, 400],
      [{ entries: [{ ...entry, size: -1 }] }, 400],
      [{ entries: [{ ...entry, size: 1e300 }] }, 400],
      [{ entries: [{ ...entry, media_type: 'x'.repeat(256) }] }, 400],
      [{ entries: [{ ...entry, address: 'b3:00' }] }, 400],
      [{ entries: [entry], withdraw: [ADDRESS] }, 400],
      [{ entries: [], range: { after: ADDRESS, through: ADDRESS } }, 400],
      [{ entries: [], url: 'http://127.0.0.1/' }, 400],
      [{ withdraw: [] }, 400],
    ];
    for (const [body, status] of refused) {
      const reply = await send('POST', '/announce', JSON.stringify(body));
      assert.equal(reply.status, status, reply.text);
    }
    // Refused by the declared length alone.
    const line = Buffer.from(`${JSON.stringify(entry)},`.repeat(1000));
    const before_bytes = process.memoryUsage().rss;
    const huge = await send('POST', '/announce', Buffer.alloc(0), {
      'content-length': String(1000 * line.length),
    }).catch((error: unknown) => error);
    assert.ok(isRefused(huge, 413), 'refused by its length');
    const compressed = gzipSync(Buffer.concat(Array.from({ length: 100 }, () => line)));
    const bomb = await send('POST', '/announce', compressed, { 'content-encoding': 'gzip' });
    assertRefusal(bomb, 413, 'decompress_cap');
    assert.ok(process.memoryUsage().rss - before_bytes < 128 * MIB, 'memory stays flat');
  });

  test('JSON bombs are refused', async () => {
    const bombs = [
      '['.repeat(100_000),
      `${'{"entries":'.repeat(20_000)}1${'}'.repeat(20_000)}`,
      `{"entries":[],"${'a'.repeat(900_000)}":1}`,
      `{"entries":[${'1,'.repeat(100_000)}1]}`,
      '{"entries":[]}garbage',
      '{"entries":[],"__proto__":{"x":1}}',
      '\u0000',
      '',
    ];
    for (const body of bombs) {
      const reply = await send('POST', '/announce', body);
      assert.ok(reply.status === 400 || reply.status === 413, `${body.slice(0, 20)}: ${reply.status} ${reply.text}`);
    }
    assert.equal((await send('POST', '/announce', '{"entries":[]}', { 'content-type': 'text/plain' })).status, 415);
  });

  test('fuzz dto_json: any JSON is accepted by its schema or gets a problem below 500', async () => {
    const routes = [
      ['POST', '/announce'],
      ['POST', '/admin/pin'],
      ['POST', '/admin/unpin'],
      ['PUT', '/names/fuzz/x'],
      ['PUT', '/trust/fuzz'],
    ] as const;
    const member = fc.constantFrom('entries', 'withdraw', 'range', 'key', 'record', 'signature', 'address', 'size');
    const leaf = fc.oneof(
      fc.constantFrom<unknown>(ADDRESS, `name:a@${'0'.repeat(64)}`, '', null, [], {}),
      fc.jsonValue(),
    );
    const body = fc.oneof(fc.jsonValue(), fc.dictionary(member, leaf), fc.record({ entries: fc.array(leaf) }));
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...routes), body, async ([method, path], value) => {
        assertSound(await send(method, path, JSON.stringify(value)));
      }),
      { numRuns },
    );
  });

  test('fuzz b3_path: any path gets an answer below 500', async () => {
    const of = (
      prefix: string,
      chars: string,
      length: { minLength: number; maxLength: number },
    ): fc.Arbitrary<string> =>
      fc.array(fc.constantFrom(...chars.split('')), length).map((each) => prefix + each.join(''));
    const text = fc.oneof(
      fc.array(fc.integer({ min: 0, max: 0xd7ff }), { maxLength: 80 }).map((codes) => String.fromCharCode(...codes)),
      of('b3:', '0123456789abcdefAg', { minLength: 60, maxLength: 68 }),
      of('name:', 'abzA09/._@%-', { minLength: 0, maxLength: 80 }),
    );
    const encoded = fc.oneof(text.map(encodeURIComponent), text.map(encodeURI)).filter(isSendable);
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('/resolve/', '/providers/', '/routing/v1/providers/', '/names/'),
        encoded,
        async (route, path) => {
          assertSound(await get(route + path));
        },
      ),
      { numRuns },
    );
    assert.equal((await get('/readyz')).status, 200, 'the service still works');
  });
});

/** A success, or a problem of the error table that is not a defect. */
function assertSound(reply: Reply): void {
  assert.ok(reply.status < 500, reply.text);
  if (reply.status < 400) return;
  assert.equal(reply.headers['content-type'], 'application/problem+json', reply.text);
  assert.equal(typeof reply.problem?.code, 'string');
}

/** The server may close the connection before the client has sent the rest. */
const isRefused = (reply: unknown, status: number): boolean =>
  reply instanceof Error || (reply as Reply).status === status;

const isSendable = (path: string): boolean => !/[^\u0021-\u007e]/.test(path);
