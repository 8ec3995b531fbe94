/**
 * The contract of the routes that read: status, headers, problem code and body of every kind of answer. The same with the
 * fast path on and off, on disk and in memory.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { verifySlice } from '@ron/simd';
import {
  ABSENT,
  assertCommon,
  CHUNK,
  EMPTY,
  LARGE,
  MODES,
  pathOf,
  SMALL,
  startWithObjects,
  STORED,
} from './stored-objects.ts';
import { addressOf, assertRefusal, type Reply, type SendInit } from '@ron/testkit/service';
import { AMNESIA, FAST_PATH_OFF, type TestService } from './support.ts';
import { KIB } from '@ron/testkit';

/** Tasks that run only on request, and deadlines that the listener applies itself. */
const UNBUILT = [
  'task compaction',
  'task repair_run',
  'task scrub_run',
  // The service has no index here.
  'deadline announce',
  'deadline announce_read',
  'deadline read',
  'deadline write',
  'retry announce',
];
const etagOf = (bytes: Uint8Array): string => `"${addressOf(bytes)}"`;

interface Case {
  readonly name: string;
  readonly of: Buffer;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly status: number;
  readonly code?: string;
  readonly body?: Buffer;
  readonly expect?: Readonly<Record<string, string | undefined>>;
}

function readCases(of: Buffer): Case[] {
  const size = of.length;
  const etag = etagOf(of);
  const get = (headers: Readonly<Record<string, string>>): { of: Buffer; headers: typeof headers } => ({ of, headers });
  const whole = { status: 200, body: of } as const;
  const cases: Case[] = [
    {
      of,
      name: 'all of it',
      ...whole,
      expect: {
        'content-type': 'application/x-test',
        'content-length': String(size),
        'accept-ranges': 'bytes',
        'cache-control': 'public, max-age=31536000, immutable',
        vary: 'Accept-Encoding',
        'content-security-policy': 'sandbox',
        etag,
      },
    },
    { of, name: 'HEAD', method: 'HEAD', status: 200, body: EMPTY, expect: { 'content-length': String(size), etag } },
    { ...get({ range: 'bytes=0-1,3-4' }), name: 'several ranges are ignored', ...whole },
    { ...get({ range: 'lines=0-1' }), name: 'another unit is ignored', ...whole },
    { ...get({ range: 'bytes=x' }), name: 'a malformed range is ignored', ...whole },
    {
      ...get({ range: `bytes=${size}-` }),
      name: 'a range outside',
      status: 416,
      code: 'range_not_satisfiable',
      expect: { 'content-range': `bytes */${size}` },
    },
    {
      ...get({ 'if-none-match': etag }),
      name: 'If-None-Match',
      status: 304,
      body: EMPTY,
      expect: { etag, 'cache-control': 'public, max-age=31536000, immutable', 'content-length': undefined },
    },
    { ...get({ 'if-none-match': `"x", W/${etag}` }), name: 'If-None-Match, weak, in a list', status: 304 },
    { ...get({ 'if-none-match': '"x"' }), name: 'If-None-Match with another tag', ...whole },
    { ...get({ 'if-match': etag }), name: 'If-Match', ...whole },
    { ...get({ 'if-match': '"x"' }), name: 'If-Match with another tag', status: 412, code: 'precondition_failed' },
    {
      of,
      name: 'DELETE',
      method: 'DELETE',
      status: 405,
      code: 'method_not_allowed',
      expect: { allow: 'GET, HEAD, PUT' },
    },
  ];
  return size === 0 ? cases : [...cases, ...rangeCases(of)];
}

/** Ranges of an object that is not empty. */
function rangeCases(of: Buffer): Case[] {
  const size = of.length;
  const etag = etagOf(of);
  const get = (headers: Readonly<Record<string, string>>): { of: Buffer; headers: typeof headers } => ({ of, headers });
  const part = (range: string, start: number, end: number, name: string): Case => ({
    ...get({ range: `bytes=${range}` }),
    name,
    status: 206,
    body: of.subarray(start, end),
    expect: { 'content-range': `bytes ${start}-${end - 1}/${size}`, 'content-length': String(end - start), etag },
  });
  const cases: Case[] = [
    part('0-0', 0, 1, 'the first byte'),
    part('-5', size - 5, size, 'the last five'),
    part(`${size - 1}-`, size - 1, size, 'the last byte, open'),
    part(`10-${size + 100}`, 10, size, 'a range that goes beyond the end'),
    {
      ...get({ range: 'bytes=0-0' }),
      method: 'HEAD',
      name: 'HEAD ignores a range',
      status: 200,
      expect: { 'content-length': String(size), 'content-range': undefined },
    },
    { ...get({ range: 'bytes=0-0', 'if-range': etag }), name: 'If-Range', status: 206, body: of.subarray(0, 1) },
    { ...get({ range: 'bytes=0-0', 'if-range': '"x"' }), name: 'If-Range with another tag', status: 200, body: of },
  ];
  if (size > 70 * KIB) {
    cases.push(
      part('65535-65536', 65_535, 65_537, 'a range over the border of two chunks'),
      part('65536-131071', 65_536, 131_072, 'exactly one chunk'),
    );
  }
  return cases;
}

/** The bytes that a slice proves against the address of `bytes`. */
async function proven(bytes: Buffer, reply: Reply, offset: number, length: number): Promise<Buffer> {
  const pieces = (async function* () {
    yield reply.body;
  })();
  const hash = Buffer.from(addressOf(bytes).slice(3), 'hex');
  const found = await Array.fromAsync(verifySlice(pieces, { hash, offset, length, group_bytes: 64 * KIB }));
  return Buffer.concat(found);
}

for (const [mode, flags] of Object.entries(MODES)) {
  describe(mode, () => {
    let service: TestService;
    let all: { authorization: string };
    const send = (method: string, path: string, init: SendInit = {}): Promise<Reply> =>
      service.send(method, path, { ...init, headers: { ...all, ...init.headers } });
    const fsynced = !flags.includes(AMNESIA[0] as never);
    const durability = { fsynced, copies: 1, target: 1 };

    before(async () => {
      service = await startWithObjects(flags);
      all = await service.allow();
    });
    after(() => service[Symbol.asyncDispose]());

    for (const [name, bytes] of Object.entries(STORED)) {
      describe(`reading, ${name}`, () => {
        for (const { name: title, of, method = 'GET', headers, status, code, body, expect } of readCases(bytes)) {
          test(title, async () => {
            const reply = await service.send(method, pathOf(of), { headers: headers ?? {} });
            assert.equal(reply.status, status, reply.text.slice(0, 300));
            assertCommon(reply);
            if (code !== undefined && method !== 'HEAD') assertRefusal(reply, status, code);
            if (body !== undefined) assert.deepEqual(reply.body, body);
            for (const [header, value] of Object.entries(expect ?? {}))
              assert.equal(reply.headers[header], value, header);
          });
        }
      });
    }

    describe('unreadable targets', () => {
      test('an address that was never stored', async () => {
        for (const path of [`/o/${ABSENT}`, `/o/${ABSENT}/manifest`, `/o/${ABSENT}?proof=bao`]) {
          assertRefusal(await service.send('GET', path), 404, 'not_found');
          assert.equal((await service.send('HEAD', path)).status, 404);
        }
      });

      test('an invalid address', async () => {
        for (const text of ['b3:00', 'x', ABSENT.toUpperCase(), `${ABSENT}0`, ABSENT.replace('b3:', 'sha256:')]) {
          assertRefusal(await service.send('GET', `/o/${text}`), 400, 'bad_request');
          assertRefusal(await service.send('GET', `/o/${text}/manifest`), 400, 'bad_request');
          assertRefusal(await send('PUT', `/o/${text}`, { body: 'x' }), 400, 'bad_request');
          assertRefusal(await send('PUT', `/o/${text}/pin`), 400, 'bad_request');
        }
        assertRefusal(await service.send('GET', `/o/${'a'.repeat(300)}`), 400, 'validation');
      });

      test('an unknown query', async () => {
        const path = pathOf(SMALL);
        assertRefusal(await service.send('GET', `${path}?offset=1`), 400, 'bad_request');
        assertRefusal(await service.send('GET', `${path}?length=1`), 400, 'bad_request');
        for (const query of ['proof=sha', 'x=1', 'proof=bao&offset=-1', 'proof=bao&length=1e3', 'proof=bao&offset='])
          assertRefusal(await service.send('GET', `${path}?${query}`), 400, 'validation');
      });

      test('a GET with a body', async () => {
        const init = { body: 'x', headers: { 'content-length': '1' } };
        assertRefusal(await service.send('GET', pathOf(SMALL), init), 400, 'bad_request');
      });
    });

    describe('proofs', () => {
      const slice = (bytes: Buffer, query: string): Promise<Reply> =>
        service.send('GET', `${pathOf(bytes)}?proof=bao${query}`, { headers: { range: 'bytes=0-0' } });

      for (const [name, bytes] of Object.entries(STORED)) {
        test(`all of ${name}, which Range does not cut`, async () => {
          const reply = await slice(bytes, '');
          assert.equal(reply.status, 200);
          assertCommon(reply);
          assert.equal(reply.headers['content-type'], 'application/vnd.ron.bao');
          assert.equal(reply.headers['accept-ranges'], 'none');
          assert.equal(reply.headers['cache-control'], 'public, max-age=31536000, immutable');
          assert.equal(reply.headers.etag, `"bao:${addressOf(bytes)}:0:${bytes.length}"`);
          assert.equal(reply.headers['content-length'], String(reply.body.length));
          assert.deepEqual(await proven(bytes, reply, 0, bytes.length), bytes);
          const head = await service.send('HEAD', `${pathOf(bytes)}?proof=bao`);
          assert.equal(head.headers['content-length'], reply.headers['content-length']);
          const { etag = '' } = reply.headers;
          const again = await service.send('GET', `${pathOf(bytes)}?proof=bao`, { headers: { 'if-none-match': etag } });
          assert.equal(again.status, 304);
        });
      }

      test('a part, and one that begins behind the end', async () => {
        for (const [offset, length] of [
          [65_000, 2000],
          [0, 1],
          [LARGE.length - 1, 1],
          [LARGE.length + 5, 10],
          [0, 0],
          [70_000, 999_999_999_999],
        ] as const) {
          const reply = await slice(LARGE, `&offset=${offset}&length=${length}`);
          assert.equal(reply.status, 200);
          assert.equal(reply.headers['content-length'], String(reply.body.length));
          const bytes = await proven(LARGE, reply, offset, length);
          assert.deepEqual(bytes, LARGE.subarray(offset, offset + length), `${offset}+${length}`);
        }
      });
    });

    describe('manifests', () => {
      test('of an object of several chunks', async () => {
        const reply = await service.send('GET', `${pathOf(LARGE)}/manifest`);
        assert.equal(reply.status, 200);
        assertCommon(reply);
        const { chunks, subtrees, ...rest } = JSON.parse(reply.text);
        assert.deepEqual(rest, {
          address: addressOf(LARGE),
          size: LARGE.length,
          chunk_bytes: 64 * KIB,
          media_type: 'application/x-test',
          durability,
        });
        const pieces = [0, 1, 2, 3].map((at) => LARGE.subarray(at * 64 * KIB, (at + 1) * 64 * KIB));
        assert.deepEqual(
          chunks,
          pieces.map((piece) => addressOf(piece).slice(3)),
        );
        assert.equal(subtrees.length, 4);
        const head = await service.send('HEAD', `${pathOf(LARGE)}/manifest`);
        assert.equal(head.status, 200);
        assert.equal(head.headers['content-length'], reply.headers['content-length']);
        assert.equal(head.body.length, 0);
      });

      test('of an object of one chunk, and of none', async () => {
        for (const bytes of [SMALL, CHUNK, EMPTY]) {
          const { chunks, subtrees, size } = JSON.parse((await service.send('GET', `${pathOf(bytes)}/manifest`)).text);
          assert.deepEqual(
            { chunks, subtrees, size },
            { chunks: [addressOf(bytes).slice(3)], subtrees: [], size: bytes.length },
          );
        }
      });
    });

    test('the fast path is on exactly when it should be', async () => {
      const hits = await service.metric('storage_cache_hits_total{cache="answers"}');
      const isOn = !(flags as readonly string[]).includes(FAST_PATH_OFF[0]!);
      assert.equal(hits > 0, isOn);
      const page_hits = await service.metric('storage_cache_hits_total{cache="page"}');
      assert.equal(page_hits > 0, isOn && fsynced && process.platform === 'linux');
    });

    test('everything that is declared is there; reads and writes of sockets are timed by the listener', () => {
      // Some requests may have waited for a worker.
      const unbuilt = service.storage.runtime.unbuilt().filter((name) => name !== 'deadline wait');
      // [storage I-8] Every task is declared, started by the runtime, and owned by its supervisor.
      assert.deepEqual(unbuilt, UNBUILT);
    });

    test('health, metrics, version and the document of the routes', async () => {
      for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json']) {
        const reply = await service.send('GET', path);
        assert.equal(reply.status, 200, path);
        assert.equal((await service.send('HEAD', path)).status, 200, path);
      }
      const metrics = (await service.send('GET', '/metrics')).text;
      for (const name of [
        'queue_depth{queue="work"}',
        'queue_dropped_total{queue="work"}',
        'queue_dropped_total{queue="events"}',
        'busy_rejections_total{queue="work",endpoint="get"}',
        'busy_rejections_total{queue="work",endpoint="put"}',
        'tasks_spawned_total{kind="get_pool"}',
        'tasks_aborted_total{kind="put_pool"}',
        'io_timeouts_total{op="get"}',
        'bus_lagged_total{topic="events"}',
        'integrity_fail_total{reason="checksum"}',
      ]) {
        assert.ok(metrics.includes(`\n${name} `), `${name} is not among the metrics`);
      }
    });
  });
}
