/** An exchanged capability permits nothing at storage that the capability of the client does not permit at interop. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { describe, test } from 'node:test';
import { attenuate, Checker, inspectToken, MemoryKeySource, mint, type MintInit } from '@ron/auth';
import { narrowed } from '@ron/auth/narrowed';
import { installSched, NEVER, realSched } from '@ron/kernel';
import type { AccessFacts, ExchangeInit, ExchangeRefusal, Issued, Scope } from '@ron/proto';
import * as fc from 'fast-check';
import { Exchange, EXCHANGED_MS } from './exchange.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 300);
const START_MS = 1_700_000_000_000;
const ADDRESS = `b3:${'00'.repeat(32)}`;
const OTHER = `b3:1${'0'.repeat(63)}`;
const sha256 = (text: string): string => `sha256:${hash('sha256', text, 'hex')}`;
const PUT = { scope: 'interop:put', address: ADDRESS } as const;
const STREAM = { scope: 'interop:put', bytes_max: 100 } as const;
const GET = { scope: 'interop:get', address: ADDRESS } as const;

class Clock {
  wall_ms = START_MS;
  now_ms = 0;
  readonly #before = installSched({ ...realSched, wall_ms: () => this.wall_ms, now_ms: () => this.now_ms });
  [Symbol.dispose](): void {
    installSched(this.#before);
  }
}

class Bench implements AsyncDisposable {
  readonly keys = new MemoryKeySource();
  readonly revoked = new Set<string>();
  floor_ms = 0;
  readonly epochs = { floor: () => this.floor_ms, isRevoked: (id: string) => this.revoked.has(id) };
  readonly exchange = new Exchange(this.keys, this.epochs);

  async client(caveats: readonly string[] = [], init: Partial<MintInit> = {}): Promise<string> {
    const scopes = ['interop:put', 'interop:get'] as const;
    const claim: MintInit = { audience: 'interop', scopes, ttl_ms: 3_600_000, subject: 'alice', epoch: START_MS };
    return attenuate((await mint(this.keys, { ...claim, ...init }, NEVER)).token, caveats);
  }

  async good(token: string, request: Omit<ExchangeInit, 'token'>): Promise<Issued> {
    const verdict = await this.exchange.exchange({ token, ...request } as ExchangeInit, NEVER);
    assert.ok(verdict.ok, verdict.ok ? '' : verdict.reason);
    return verdict;
  }

  async refused(token: string, request: Omit<ExchangeInit, 'token'> = PUT): Promise<ExchangeRefusal> {
    const verdict = await this.exchange.exchange({ token, ...request } as ExchangeInit, NEVER);
    assert.ok(!verdict.ok, 'it was exchanged');
    return verdict;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.keys.close();
  }
}

interface Use {
  readonly address?: string;
  readonly body?: string;
  readonly more?: AccessFacts;
}

/** Both phases of a check, as in a service. A new checker for each call, so that rates do not add up. */
async function permits(
  { keys, epochs }: Bench,
  token: string,
  scope: Scope,
  { address, body = '', more }: Use,
  settled?: readonly ('ip' | 'rate')[],
): Promise<boolean> {
  const { audience } = inspectToken(token);
  const checker = new Checker({ audience, keys, epochs, ...(settled && { settled }) });
  const bytes = Buffer.from(body);
  const facts = { address, ...more };
  const request = { authorization: `Bearer ${token}`, scope, source_ip: '127.0.0.1', facts, body_bytes: bytes.length };
  const verdict = await checker.checkHeaders(request, NEVER);
  if (!verdict.ok) return false;
  verdict.phase2.update(bytes);
  verdict.phase2.end();
  return verdict.phase2.settle() === undefined;
}

describe('exchange', () => {
  test('a scope is mapped to its scope of storage and to nothing else', async () => {
    await using bench = new Bench();
    const token = await bench.client();
    const put = inspectToken((await bench.good(token, PUT)).token);
    assert.deepEqual([put.audience, put.scopes, put.subject], ['storage', ['storage:put'], 'alice']);
    assert.deepEqual(put.texts.slice(3), [`address ^= ${ADDRESS}`]);
    assert.deepEqual(inspectToken((await bench.good(token, GET)).token).scopes, ['storage:get']);
    assert.deepEqual(inspectToken((await bench.good(token, STREAM)).token).texts.slice(3), ['bytes <= 100']);
  });

  const name = 'name ^= a';
  const table: readonly [caveat: string, request: Omit<ExchangeInit, 'token'>, outcome: RegExp | readonly string[]][] =
    [
      ['scopes in interop:get', PUT, /lacks scope interop:put/],
      ['scopes in interop:get', GET, []],
      ['audience = interop', PUT, []],
      ['audience = storage', PUT, /capability is for storage/],
      [`expires < ${START_MS}`, PUT, /expired/],
      [`sent < ${START_MS}`, PUT, /expired/],
      ['address ^= b3:00', PUT, ['address ^= b3:00']],
      ['address ^= b3:01', PUT, /an address that begins with b3:01/],
      ['address ^= b3:01', GET, /an address that begins with b3:01/],
      ['address ^= b3:01', STREAM, ['address ^= b3:01']],
      ['bytes <= 10', PUT, ['bytes <= 10']],
      ['bytes <= 10', STREAM, ['bytes <= 10']],
      ['bytes <= 0', GET, ['bytes <= 0']],
      [name, PUT, [name]],
      ['label ^= a', PUT, ['label ^= a']],
      ['tenant = acme', GET, ['tenant = acme']],
      [`body = ${sha256('x')}`, PUT, [`body = ${sha256('x')}`]],
      [`body = ${sha256('x')}`, STREAM, [`body = ${sha256('x')}`]],
      [`body = ${ADDRESS}`, PUT, [`body = ${ADDRESS}`]],
      [`body = ${OTHER}`, PUT, /bound to another body/],
      [`body = ${OTHER}`, GET, [`body = ${OTHER}`]],
      ['ip in 10.0.0.0/8', PUT, []],
      ['rate <= 1/m', PUT, []],
    ];
  for (const [caveat, request, outcome] of table) {
    test(`${caveat}, ${Object.values(request).join(' ')}: ${outcome instanceof RegExp ? 'refused' : 'exchanged'}`, async () => {
      using _ = new Clock();
      await using bench = new Bench();
      const token = await bench.client([caveat]);
      if (outcome instanceof RegExp) {
        assert.match((await bench.refused(token, request)).reason, outcome);
        return;
      }
      const own = 'address' in request ? `address ^= ${ADDRESS}` : 'bytes <= 100';
      const { texts } = inspectToken((await bench.good(token, request)).token);
      assert.deepEqual(texts.slice(3), [own, ...outcome]);
    });
  }

  test('passport does not count the rate, so that the request that interop counted is exchanged', async () => {
    await using bench = new Bench();
    const token = await bench.client(['rate <= 1/m']);
    for (let at = 0; at < 3; at++) await bench.good(token, PUT);
  });

  test('the result lives a minute, and not longer than any expiry or sent caveat of the client', async () => {
    using clock = new Clock();
    await using bench = new Bench();
    const long = await bench.good(await bench.client(), PUT);
    assert.equal(long.expires_ms, START_MS + EXCHANGED_MS);
    const caveats = [`expires < ${START_MS + 30_000}`, `expires < ${START_MS + 500}`, `expires < ${START_MS + 20_000}`];
    assert.equal((await bench.good(await bench.client(caveats), PUT)).expires_ms, START_MS + 500);
    const sent = await bench.client([`sent < ${START_MS + 700}`]);
    assert.equal((await bench.good(sent, PUT)).expires_ms, START_MS + 700);
    assert.ok(await permits(bench, long.token, 'storage:put', { address: ADDRESS }));
    clock.wall_ms += EXCHANGED_MS;
    assert.ok(!(await permits(bench, long.token, 'storage:put', { address: ADDRESS })));
  });

  test('a revocation of the client, its capability or an issuer refuses the exchange, and acts on an earlier result', async () => {
    const [issuer, root] = ['I'.repeat(22), 'R'.repeat(22)];
    const revokes: readonly ((bench: Bench, id: string) => void)[] = [
      (bench, id) => bench.revoked.add(id),
      (bench) => bench.revoked.add(issuer),
      (bench) => bench.revoked.add(root),
      (bench) => (bench.floor_ms = START_MS + 1),
    ];
    for (const revoke of revokes) {
      using _ = new Clock();
      await using bench = new Bench();
      const token = await bench.client([], { chain: [issuer, root] });
      const { capability_id } = inspectToken(token);
      const result = await bench.good(token, PUT);
      assert.deepEqual(inspectToken(result.token).chain, [capability_id, issuer, root]);
      assert.ok(await permits(bench, result.token, 'storage:put', { address: ADDRESS }));
      revoke(bench, capability_id);
      const { code, cause } = await bench.refused(token);
      assert.deepEqual([code, cause], ['unauthorized', 'revoked']);
      assert.ok(!(await permits(bench, result.token, 'storage:put', { address: ADDRESS })), 'the result still works');
    }
  });

  test('a subject revoked and issued to again gets results of the new epoch only', async () => {
    using clock = new Clock();
    await using bench = new Bench();
    const old = await bench.client();
    clock.wall_ms += 1000;
    bench.floor_ms = START_MS + 1000;
    await bench.refused(old);
    const result = await bench.good(await bench.client([], { epoch: START_MS + 1000 }), PUT);
    assert.equal(inspectToken(result.token).epoch, START_MS + 1000, 'that of the client');
  });

  test('tokens of other audiences, forged ones and garbage are refused', async () => {
    await using bench = new Bench();
    const good = await bench.client();
    const other = await bench.client([], { audience: 'storage', scopes: ['storage:put'] });
    assert.match((await bench.refused(other)).reason, /is for storage; this is interop/);
    assert.match((await bench.refused(`${good.slice(0, -2)}AA`)).reason, /signature is invalid/);
    assert.match((await bench.refused('nonsense')).reason, /not a capability/);
    const result = await bench.good(good, PUT);
    assert.match((await bench.refused(result.token)).reason, /is for storage/, 'a result is not exchanged again');
  });

  test('a capability without room for the restrictions is refused, never exchanged without them', async () => {
    await using bench = new Bench();
    const ids = ['A', 'B', 'C', 'D'].map((letter) => letter.repeat(22));
    assert.match((await bench.refused(await bench.client([], { chain: ids }))).reason, /issued over 4 steps/);
    const full = Array.from({ length: 29 }, (_, at) => `bytes <= ${1000 + at}`);
    assert.match((await bench.refused(await bench.client(full))).reason, /no room/);
    await bench.good(await bench.client(full.slice(1)), PUT);
  });

  test('a capability narrowed to one request is exchanged for that request', async () => {
    await using bench = new Bench();
    const body = Buffer.from('x');
    const token = narrowed(await bench.client([], { epoch: 0 }), { audience: 'interop', body });
    const result = await bench.good(token, STREAM);
    assert.ok(await permits(bench, result.token, 'storage:put', { address: ADDRESS, body: 'x' }));
    assert.ok(!(await permits(bench, result.token, 'storage:put', { address: ADDRESS, body: 'y' })));
  });
});

const BODIES = ['', 'one', 'another one'] as const;
const caveat = fc.oneof(
  fc.integer({ min: -1, max: 9 }).map((seconds) => `expires < ${START_MS + seconds * 1000}`),
  fc.integer({ min: -1, max: 9 }).map((seconds) => `sent < ${START_MS + seconds * 1000}`),
  fc.constantFrom('b3:', 'b3:0', ADDRESS, 'b3:1').map((prefix) => `address ^= ${prefix}`),
  fc.constantFrom('name ^= a', 'label ^= x', 'tenant = acme', 'tenant = zoo'),
  fc.constantFrom(0, 3, 5, 100).map((bytes) => `bytes <= ${bytes}`),
  fc.constantFrom('1/s', '5/s').map((rate) => `rate <= ${rate}`),
  fc.constantFrom('127.0.0.0/8', '10.0.0.0/8').map((net) => `ip in ${net}`),
  fc.constantFrom(...BODIES).map((body) => `body = ${sha256(body)}`),
  fc.constantFrom('interop', 'storage').map((audience) => `audience = ${audience}`),
  fc
    .subarray(['interop:put', 'interop:get', 'storage:put', 'storage:get'], { minLength: 1 })
    .map((scopes) => `scopes in ${scopes.join(',')}`),
);
const uses = fc.array(
  fc.record({
    after_ms: fc.integer({ min: 0, max: 70_000 }),
    scope: fc.constantFrom<Scope>('storage:put', 'storage:get', 'storage:pin', 'storage:admin'),
    use: fc.record({
      address: fc.constantFrom(ADDRESS, OTHER),
      body: fc.constantFrom(...BODIES),
      more: fc.constantFrom<AccessFacts>({}, { name: 'a', label: 'x', tenant: 'acme' }),
    }),
  }),
  { minLength: 6, maxLength: 12 },
);

test('for any chain of caveats, a result permits no request that the capability of the client does not permit', async () => {
  using clock = new Clock();
  await using bench = new Bench();
  const seen = { exchanged: 0, refused: 0, permitted: 0 };
  const request = fc.constantFrom<Omit<ExchangeInit, 'token'>>(PUT, STREAM, GET);
  const property = fc.asyncProperty(fc.array(caveat, { maxLength: 4 }), request, uses, async (own, asked, tries) => {
    clock.wall_ms = START_MS;
    const token = await bench.client(own);
    const verdict = await bench.exchange.exchange({ token, ...asked } as ExchangeInit, NEVER);
    seen[verdict.ok ? 'exchanged' : 'refused'] += 1;
    if (!verdict.ok) return;
    const { expires_ms } = inspectToken(verdict.token);
    assert.ok(expires_ms <= Math.min(inspectToken(token).expires_ms, START_MS + EXCHANGED_MS));
    for (const { after_ms, scope, use } of tries) {
      clock.wall_ms = START_MS + after_ms;
      if (!(await permits(bench, verdict.token, scope, use))) continue;
      seen.permitted += 1;
      assert.equal(scope.replace('storage', 'interop'), asked.scope, 'no other scope');
      if ('address' in asked) assert.equal(use.address, asked.address);
      else assert.ok(use.body.length <= STREAM.bytes_max);
      // Interop enforces `ip` and `rate` itself.
      const ofClient = await permits(bench, token, asked.scope, use, ['ip', 'rate']);
      assert.ok(ofClient, `the client may not: ${own.join('; ')}`);
    }
  });
  await fc.assert(property, { numRuns });
  assert.ok(seen.exchanged > numRuns / 5 && seen.permitted > numRuns / 8, JSON.stringify(seen));
});
