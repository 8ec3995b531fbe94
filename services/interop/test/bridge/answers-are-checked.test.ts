/** Arbitrary answers of storage and passport to the bridge: each request gets an answer, and a receipt only for its own body. */
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { inspectToken, MemoryKeySource, mint } from '@ron/auth';
import { reachPrivately } from '@ron/client/node';
import { isRonError, NEVER } from '@ron/kernel';
import type { IncomingMessage, ServerResponse } from '@ron/kernel/http';
import type { ExchangeInit } from '@ron/proto';
import { bytesOf, eventually, fuzzRuns, KIB, tempDirFor } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { PassportExchange } from '../../src/bridge/passport-exchange.ts';
import { outcomeOf } from '../../src/upstreams/outcome.ts';
import { NO_RATES } from '../node/senders.ts';
import { fakeUpstream } from '../upstreams/support.ts';
import { fakeStorage, startBridge } from './support.ts';

/** An answer as it is sent. */
interface Lie {
  /** In place of an answer of HTTP. */
  readonly raw: Uint8Array | undefined;
  readonly status: number;
  readonly type: string;
  readonly body: Uint8Array;
  readonly end: 'whole' | 'chunked' | 'truncated' | 'huge';
}

/** An answer without a defect of HTTP. */
const whole = (value: unknown): Lie => {
  const body = Buffer.from(JSON.stringify(value));
  return { raw: undefined, status: 200, type: 'application/json', body, end: 'whole' };
};

const lieOf = (bodies: fc.Arbitrary<Uint8Array>, statuses: readonly number[]): fc.Arbitrary<Lie> =>
  fc.record({
    raw: fc.oneof(
      { weight: 8, arbitrary: fc.constant(undefined) },
      fc.uint8Array({ maxLength: 100 }),
      fc
        .constantFrom('', 'HTTP/1.1 201 Created\r\nContent-Length: x\r\n\r\n', 'HTTP/1.1 201')
        .map((text) => new Uint8Array(Buffer.from(text))),
    ),
    status: fc.constantFrom(...statuses),
    type: fc.oneof(
      { weight: 3, arbitrary: fc.constant('application/json') },
      fc.constantFrom('application/problem+json', 'text/plain', ''),
    ),
    body: bodies,
    end: fc.oneof(
      { weight: 6, arbitrary: fc.constant('whole' as const) },
      fc.constantFrom('chunked', 'truncated', 'huge'),
    ),
  });

const jsonOf = (values: fc.Arbitrary<unknown>): fc.Arbitrary<Uint8Array> =>
  values.map((value) => new Uint8Array(Buffer.from(JSON.stringify(value) ?? '')));

const problems = fc.record(
  {
    code: fc.oneof(fc.constantFrom('busy', 'not_ready', 'storage_full', 'forbidden'), fc.jsonValue({ maxDepth: 1 })),
    status: fc.jsonValue({ maxDepth: 1 }),
    detail: fc.jsonValue({ maxDepth: 1 }),
  },
  { requiredKeys: [] },
);

function tell(lie: Lie, request: IncomingMessage, response: ServerResponse): void {
  const { raw, status, type, body, end } = lie;
  if (raw !== undefined) {
    request.socket.end(raw);
    return;
  }
  const more = { whole: 0, chunked: 0, truncated: 10, huge: 2 ** 31 }[end];
  const length = end === 'chunked' ? {} : { 'Content-Length': body.length + more };
  response.writeHead(status, { ...(type !== '' && { 'Content-Type': type }), ...length });
  if (more === 0) response.end(body);
  else response.write(body, () => request.socket.destroy());
}

const SMALL = bytesOf(100, 3);
const STREAMED = bytesOf(200 * KIB, 4);
const DURABILITY = { fsynced: true, copies: 1, target: 1 };
const receiptFor = (body: Uint8Array) => ({ address: addressOf(body), size: body.length, durability: DURABILITY });
const CHUNKED = { 'transfer-encoding': 'chunked' };

test('after any answer of storage, a put has its own receipt or a known refusal', async (t) => {
  const fake = await fakeStorage(t, () => undefined);
  const bridge = await startBridge(t, { storage_socket: fake.path, flags: NO_RATES });
  const answering = (answer: typeof fake.answer): void => {
    fake.answer = (request, response) => {
      request.resume();
      request.on('end', () => answer(request, response));
    };
  };
  /** On a busy machine passport may be late. */
  const honest = async (): Promise<void> => {
    const text = JSON.stringify(receiptFor(SMALL));
    const headers = { 'Content-Type': 'application/json', 'Content-Length': text.length };
    answering((_, response) => response.writeHead(201, headers).end(text));
    await eventually('an honest receipt is passed on', async () => (await bridge.put(SMALL)).status === 201);
  };
  // Two honest answers for each lie keep the breaker closed.
  for (let at = 0; at < 10; at += 1) await honest();
  const statuses = [
    200, 200, 201, 201, 201, 201, 201, 202, 204, 302, 400, 401, 403, 404, 409, 413, 429, 500, 503, 507, 599,
  ];
  const lies = fc.boolean().chain((isStreamed) => {
    const receipt = receiptFor(isStreamed ? STREAMED : SMALL);
    const field = fc.constantFrom('address', 'size', 'durability', 'more');
    const edited = fc
      .tuple(field, fc.jsonValue({ maxDepth: 1 }))
      .map(([name, value]) => ({ ...receipt, [name]: value }));
    const bodies = fc.oneof(
      jsonOf(
        fc.oneof(edited, { weight: 2, arbitrary: fc.constant(receipt) }, fc.constant(receiptFor(Buffer.from('other')))),
      ),
      jsonOf(fc.oneof(problems, fc.jsonValue())),
      fc.uint8Array({ maxLength: 50 }),
    );
    return fc.record({ isStreamed: fc.constant(isStreamed), lie: lieOf(bodies, statuses) });
  });
  const seen = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(lies, async ({ isStreamed, lie }) => {
      answering((request, response) => tell(lie, request, response));
      const body = isStreamed ? STREAMED : SMALL;
      const reply = await bridge.put(body, isStreamed ? { headers: CHUNKED } : {});
      requireSound(reply, body, lie);
      seen.set(reply.status, (seen.get(reply.status) ?? 0) + 1);
      await honest();
      await honest();
    }),
    {
      ...fuzzRuns(150),
      examples: [false, true].flatMap((isStreamed) => {
        const receipt = receiptFor(isStreamed ? STREAMED : SMALL);
        const answers = [receipt, { ...receipt, durability: undefined }, { ...receipt, size: 'all' }];
        return answers.map((answer): [{ isStreamed: boolean; lie: Lie }] => [{ isStreamed, lie: whole(answer) }]);
      }),
    },
  );
  assert.ok(seen.has(200) && seen.has(503), JSON.stringify([...seen]));
  t.diagnostic(JSON.stringify([...seen]));
});

const REFUSALS = [400, 401, 403, 404, 409, 413, 429, 507];

function requireSound(reply: Reply, body: Uint8Array, lie: Lie): void {
  const text = JSON.stringify({ ...lie, body: Buffer.from(lie.body).toString('latin1') });
  if (reply.status === 200 || reply.status === 201) {
    const { address, size, durability } = reply.json;
    assert.equal(address, addressOf(body), text);
    assert.deepEqual(
      [size, durability.copies, durability.target, durability.fsynced].map((value) => typeof value),
      ['number', 'number', 'number', 'boolean'],
      text,
    );
    assert.ok(lie.raw === undefined && lie.end === 'whole', text);
  } else if (REFUSALS.includes(reply.status)) assert.ok(lie.raw === undefined && lie.status >= 400, text);
  else {
    assert.ok([503, 504].includes(reply.status), `${reply.text} ${text}`);
    assert.equal(reply.headers['x-reason'], 'DOWNSTREAM_UNAVAILABLE', text);
  }
}

test('after any answer of passport, an exchange gives a capability of storage, a known refusal, or an error of passport', async (t) => {
  const run = join(tempDirFor(t), 'run');
  await mkdir(run, { mode: 0o700 });
  const keys = new MemoryKeySource();
  const tokenFor = async (audience: 'storage' | 'passport'): Promise<string> => {
    const scopes = audience === 'storage' ? (['storage:put'] as const) : (['passport:exchange'] as const);
    return (await mint(keys, { audience, scopes, ttl_ms: 3_600_000 }, NEVER)).token;
  };
  const [token, own] = [await tokenFor('storage'), await tokenFor('passport')];
  const fake = await fakeUpstream(t, join(run, 'passport.sock'));
  const passport = new PassportExchange({
    way: reachPrivately(`unix:${fake.path}`),
    file: { token: () => Promise.resolve(own), current: own, forget: () => undefined },
    connect_ms: 5000,
  });
  const init: ExchangeInit = { token: own, scope: 'interop:put', bytes_max: 1 };
  const verdicts = fc.oneof(
    fc.record(
      {
        ok: fc.oneof({ weight: 5, arbitrary: fc.constant(true) }, fc.jsonValue({ maxDepth: 0 })),
        token: fc.oneof({ weight: 4, arbitrary: fc.constant(token) }, fc.constant(own), fc.jsonValue({ maxDepth: 1 })),
        expires_ms: fc.oneof({ weight: 4, arbitrary: fc.constant(2_000_000_000_000) }, fc.jsonValue({ maxDepth: 1 })),
      },
      { requiredKeys: ['ok'] },
    ),
    fc.record(
      {
        ok: fc.constant(false),
        code: fc.oneof(fc.constantFrom('unauthorized', 'forbidden', 'internal'), fc.jsonValue({ maxDepth: 1 })),
        cause: fc.oneof(fc.constantFrom('expired', 'revoked'), fc.jsonValue({ maxDepth: 1 })),
        reason: fc.oneof(fc.string(), fc.jsonValue({ maxDepth: 1 })),
      },
      { requiredKeys: ['ok'] },
    ),
    fc.jsonValue(),
  );
  const bodies = fc.oneof(
    { weight: 5, arbitrary: jsonOf(verdicts) },
    jsonOf(problems),
    fc.uint8Array({ maxLength: 50 }),
  );
  const counts = { good: 0, refused: 0, failed: 0 };
  await fc.assert(
    fc.asyncProperty(lieOf(bodies, [200, 200, 200, 200, 204, 302, 401, 403, 429, 500, 503]), async (lie) => {
      fake.answer = (request, _, response) => tell(lie, request, response);
      const verdict = await passport.exchange(init, NEVER).catch((error: unknown) => {
        // Upstream maps both.
        assert.ok(isRonError(error) || outcomeOf(error) === 'error', String(error));
        return undefined;
      });
      if (verdict === undefined) counts.failed += 1;
      else if (verdict.ok) {
        assert.equal(inspectToken(verdict.token).audience, 'storage');
        assert.ok(Number.isSafeInteger(verdict.expires_ms), JSON.stringify(verdict));
        counts.good += 1;
      } else {
        const { code, cause, reason } = verdict;
        assert.ok(code === 'unauthorized' || code === 'forbidden', JSON.stringify(verdict));
        assert.ok(cause === undefined || cause === 'expired' || cause === 'revoked', JSON.stringify(verdict));
        assert.equal(typeof reason, 'string', JSON.stringify(verdict));
        counts.refused += 1;
      }
    }),
    {
      ...fuzzRuns(600),
      examples: [
        { ok: true, token, expires_ms: 2_000_000_000_000 },
        { ok: false, code: 'forbidden', reason: 'refused by the test' },
      ].map((verdict) => [whole(verdict)]),
    },
  );
  assert.ok(
    Object.values(counts).every((count) => count > 0),
    JSON.stringify(counts),
  );
});
