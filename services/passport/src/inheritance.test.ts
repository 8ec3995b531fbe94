/** An issued capability permits nothing that the issuing capability would not have permitted. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { attenuate, Checker, inspectToken, MemoryKeySource, mint } from '@ron/auth';
import { installSched, isRonError, NEVER, realSched, Watch } from '@ron/kernel';
import { scopeService, scopesOf, type AccessFacts, type Scope, type Service } from '@ron/proto';
import { narrowed } from '@ron/auth/narrowed';
import * as fc from 'fast-check';
import { inherit } from './inheritance.ts';
import { Issuer } from './issuer.ts';
import { memoryStore, RevocationRegistry } from './revocation-registry.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 300);
const START_MS = 1_700_000_000_000;
const ISSUER = { capability_id: 'A'.repeat(22), chain: [] };
const BODIES = ['', 'one', 'another one'] as const;
const sha256 = (text: string): string => `sha256:${hash('sha256', text, 'hex')}`;

/** Few values of each kind, so that caveats and requests often match. */
const caveat = fc.oneof(
  fc.integer({ min: 1, max: 9 }).map((seconds) => `expires < ${START_MS + seconds * 1000}`),
  fc.integer({ min: 1, max: 9 }).map((seconds) => `sent < ${START_MS + seconds * 1000}`),
  fc.constantFrom('b3:', 'b3:0', 'b3:00', 'b3:1').map((prefix) => `address ^= ${prefix}`),
  fc.constantFrom('a', 'a/', 'a/b', 'b').map((prefix) => `name ^= ${prefix}`),
  fc.constantFrom('x', 'x/', 'y').map((prefix) => `label ^= ${prefix}`),
  fc.constantFrom('acme', 'zoo').map((tenant) => `tenant = ${tenant}`),
  fc.constantFrom(0, 3, 5, 100).map((bytes) => `bytes <= ${bytes}`),
  fc.constantFrom('1/s', '5/s', '9/m', '1000/s').map((rate) => `rate <= ${rate}`),
  fc.constantFrom('127.0.0.0/8', '127.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '::/0').map((net) => `ip in ${net}`),
  fc.constantFrom(...BODIES).map((body) => `body = ${sha256(body)}`),
  fc
    .subarray(['passport:issue', 'passport:verify', 'storage:get', 'storage:put', 'kms:sign'], { minLength: 1 })
    .map((scopes) => `scopes in ${scopes.join(',')}`),
);
const caveats = fc.array(caveat, { maxLength: 3 });
const tried = fc.record({
  after_ms: fc.integer({ min: 0, max: 6000 }),
  source_ip: fc.constantFrom('127.0.0.1', '127.9.9.9', '10.1.1.1', '::1'),
  facts: fc.record({
    address: fc.option(fc.constantFrom(`b3:${'0'.repeat(64)}`, `b3:1${'0'.repeat(63)}`), { nil: undefined }),
    name: fc.option(fc.constantFrom('a', 'a/b/c', 'b'), { nil: undefined }),
    label: fc.option(fc.constantFrom('x/1', 'y'), { nil: undefined }),
    tenant: fc.option(fc.constantFrom('acme', 'zoo'), { nil: undefined }),
  }),
  body: fc.constantFrom(...BODIES),
});
type Tried = typeof tried extends fc.Arbitrary<infer T> ? T : never;
const request = fc.record({
  scope: fc.constantFrom<Scope>('storage:get', 'storage:put', 'kms:sign', 'passport:verify'),
  ttl_ms: fc.option(fc.constantFrom(1, 500, 3000, 1e12), { nil: undefined }),
  caveats,
});

class Clock {
  wall_ms = START_MS;
  now_ms = 0;
  readonly #before = installSched({ ...realSched, wall_ms: () => this.wall_ms, now_ms: () => this.now_ms });
  [Symbol.dispose](): void {
    installSched(this.#before);
  }
}

/** Both phases of a check, as in a service. A new checker per call, because rates are compared separately. */
async function permits(
  keys: MemoryKeySource,
  token: string,
  scope: string,
  { source_ip, facts, body }: Tried,
): Promise<boolean> {
  const checker = new Checker({ audience: inspectToken(token).audience, keys });
  const bytes = Buffer.from(body);
  const context = { authorization: `Bearer ${token}`, scope: scope as Scope, source_ip, facts: facts as AccessFacts };
  const verdict = await checker.checkHeaders({ ...context, body_bytes: bytes.length }, NEVER);
  if (!verdict.ok) return false;
  verdict.phase2.update(bytes);
  verdict.phase2.end();
  return verdict.phase2.settle() === undefined;
}

/** The lowest rate of a token, per second. */
function rateOf(token: string): { per_s: number; burst: number } {
  let [per_s, burst] = [Infinity, Infinity];
  for (const { count, period_ms } of inspectToken(token).rates.values()) {
    per_s = Math.min(per_s, (count * 1000) / period_ms);
    burst = Math.min(burst, count);
  }
  return { per_s, burst };
}

test('an issued capability never exceeds its issuer, for any issuer, issue request and use', async () => {
  using clock = new Clock();
  await using keys = new MemoryKeySource();
  const issuer = issuerWith(keys, { ttl_default: 2000, ttl_max: 5000 });
  const seen = { issued: 0, refused: 0, permitted: 0 };
  const property = fc.asyncProperty(
    caveats,
    request,
    fc.array(tried, { minLength: 4, maxLength: 8 }),
    async (own, question, tries) => {
      const asked = { ...question, audience: scopeService(question.scope) };
      clock.wall_ms = START_MS;
      clock.now_ms += 1e9;
      const claim = { audience: 'passport', scopes: scopesOf('passport'), ttl_ms: 7000 } as const;
      const token = attenuate((await mint(keys, claim, NEVER)).token, own);
      const { capability_id, chain, texts } = inspectToken(token);
      const by = { capability_id, chain, caveats: texts };
      let issued: string;
      try {
        issued = (await issuer.issue({ ...asked, scopes: [asked.scope] }, by, NEVER)).token;
      } catch (error) {
        assert.ok(isRonError(error, 'validation') || isRonError(error, 'forbidden'), String(error));
        seen.refused += 1;
        return;
      }
      seen.issued += 1;
      const [narrow, wide] = [rateOf(issued), rateOf(token)];
      assert.ok(narrow.per_s <= wide.per_s && narrow.burst <= wide.burst, 'the rate is not higher');
      assert.ok(inspectToken(issued).expires_ms <= expiryOf(token), 'it does not expire later');
      const own_scopes = inspectToken(token).texts.filter((text) => text.startsWith('scopes'));
      if (asked.audience === 'passport') for (const text of own_scopes) assert.ok(text.includes(asked.scope), text);
      for (const each of tries) {
        clock.wall_ms = START_MS + each.after_ms;
        if (!(await permits(keys, issued, asked.scope, each))) continue;
        seen.permitted += 1;
        // The audience differs, which is the purpose of issuing. Every other restriction must hold for the issuer too.
        const same = attenuateAs(token, asked.scope);
        assert.ok(
          await permits(keys, await remint(keys, same, asked.audience), asked.scope, each),
          'the issuer does not permit it',
        );
      }
    },
  );
  await fc.assert(property, { numRuns });
  assert.ok(seen.issued > numRuns / 4 && seen.permitted > numRuns / 8, JSON.stringify(seen));
});

/** The caveats of the issuing capability, except its audience and scopes. */
function attenuateAs(token: string, scope: string): { texts: string[]; scope: string; expires_ms: number } {
  const { texts } = inspectToken(token);
  const expires_ms = expiryOf(token);
  return { texts: texts.filter((text) => !/^(audience|scopes|expires|sent|body) /.test(text)), scope, expires_ms };
}

/** Without the limits of one request. */
function expiryOf(token: string): number {
  return Math.min(...inspectToken(token).caveats.flatMap((each) => (each.key === 'expires' ? [each.at_ms] : [])));
}

/** The issuing capability as if it were for the service in question. */
async function remint(
  keys: MemoryKeySource,
  { texts, scope, expires_ms }: ReturnType<typeof attenuateAs>,
  audience: Service,
): Promise<string> {
  const claim = { audience, scopes: [scope as Scope], ttl_ms: 1e9, expires_ms_max: expires_ms, caveats: texts };
  return (await mint(keys, claim, NEVER)).token;
}

function issuerWith(keys: MemoryKeySource, ttl: { readonly ttl_default: number; readonly ttl_max: number }): Issuer {
  const registry = new RevocationRegistry(memoryStore(), new Watch('revocations', memoryStore().state.document));
  const policy = { ...ttl, never_issue: [], issue_deadline: 1000, log_capability_file: undefined };
  return new Issuer({ keys, registry, policy: () => policy });
}

test('the caveats of an issuer are inherited, and a scopes caveat with scopes of other services limits the issued scopes', async () => {
  await using keys = new MemoryKeySource();
  const issuer = issuerWith(keys, { ttl_default: 2000, ttl_max: 5000 });
  const ask = { audience: 'storage', scopes: ['storage:get'] } as const;
  const own = ['rate <= 5/s', 'ip in 10.0.0.0/8', 'bytes <= 10', `body = ${sha256('x')}`, 'tenant = acme'];
  const { token } = await issuer.issue({ ...ask, caveats: ['tenant = acme'] }, { ...ISSUER, caveats: own }, NEVER);
  const inherited = own.filter((text) => !text.startsWith('body'));
  assert.deepEqual(inspectToken(token).texts.slice(3).toSorted(), inherited.toSorted(), 'each caveat occurs once');
  const limited = { ...ISSUER, caveats: ['scopes in passport:issue', 'scopes in passport:issue,storage:get'] };
  await issuer.issue(ask, limited, NEVER);
  await assert.rejects(issuer.issue({ ...ask, scopes: ['storage:put'] }, limited, NEVER), { code: 'forbidden' });
  await assert.rejects(issuer.issue({ audience: 'kms', scopes: ['kms:sign'] }, limited, NEVER), { code: 'forbidden' });
  const mere = { ...ISSUER, caveats: ['scopes in passport:issue'] };
  const verify = { audience: 'passport', scopes: ['passport:verify'] } as const;
  await assert.rejects(issuer.issue(verify, mere, NEVER), { code: 'forbidden' }, 'the issuer lacks that scope');
  for (const subject of ['root', 'owner', 'svc-storage'])
    await assert.rejects(issuer.issue({ ...ask, subject }, mere, NEVER), { code: 'forbidden' });
});

test('a capability that was narrowed to the issue request issues as if it had not been narrowed', async () => {
  await using keys = new MemoryKeySource();
  const issuer = issuerWith(keys, { ttl_default: 3_600_000, ttl_max: 3_600_000 });
  const claim = { audience: 'passport', scopes: scopesOf('passport'), ttl_ms: 86_400_000 } as const;
  const token = (await mint(keys, claim, NEVER)).token;
  const { capability_id, chain, texts } = inspectToken(
    narrowed(token, { audience: 'passport', body: Buffer.from('x') }),
  );
  const ask = { audience: 'storage', scopes: ['storage:get'] } as const;
  const issued = await issuer.issue(ask, { capability_id, chain, caveats: texts }, NEVER);
  assert.ok(issued.expires_ms > Date.now() + 3_500_000, 'not the few seconds of the request');
  assert.equal(inspectToken(issued.token).texts.length, 3, 'not the body of the request');
});

test('a holder does not escape the expiry of its capability by appending a body caveat', async () => {
  await using keys = new MemoryKeySource();
  const claim = { audience: 'passport', scopes: scopesOf('passport'), ttl_ms: 86_400_000 } as const;
  const until_ms = Date.now() + 60_000;
  const given = attenuate((await mint(keys, claim, NEVER)).token, [`expires < ${until_ms}`]);
  const bound = attenuate(given, [`body = ${sha256('x')}`]);
  const sent = narrowed(given, { audience: 'passport', body: Buffer.from('x') });
  const sentTwice = narrowed(bound, { audience: 'passport', body: Buffer.from('x') });
  for (const token of [given, bound, sent, sentTwice]) {
    assert.equal(inherit({ caveats: inspectToken(token).texts }).expires_ms_max, until_ms);
  }
});

test('a holder that adds caveats after an expiry cannot issue beyond it', async () => {
  await using keys = new MemoryKeySource();
  const claim = { audience: 'passport', scopes: scopesOf('passport'), ttl_ms: 86_400_000 } as const;
  const expires_ms = Date.now() + 10_000;
  const delegated = attenuate((await mint(keys, claim, NEVER)).token, [`expires < ${expires_ms}`]);
  // `narrowed` adds only the body to a capability that expires within seconds.
  for (const token of [
    attenuate(delegated, [`body = ${sha256('x')}`]),
    narrowed(delegated, { audience: 'passport', body: Buffer.from('x') }),
  ])
    assert.equal(inherit({ caveats: inspectToken(token).texts }).expires_ms_max, expires_ms);
});
