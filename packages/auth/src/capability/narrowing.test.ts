import type { AccessRequest } from '@ron/proto';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { SCOPE_NAMES } from '@ron/proto';
import * as fc from 'fast-check';
import { arbitraryCaveat, hex } from '../../test/arbitraries.ts';
import { Bench } from '../../test/support.ts';
import { attenuate } from './capability.ts';
import { formatCaveat } from './caveats.ts';
import { addCaveat } from './macaroon.ts';
import { decodeToken, encodeToken } from './token.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 400);

const body = fc.uint8Array({ maxLength: 300 });
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const optional = <T>(values: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(values, { nil: undefined });

const request = fc.record({
  scope: fc.oneof(fc.constantFrom('storage:get' as const, 'storage:put' as const), fc.constantFrom(...SCOPE_NAMES)),
  source_ip: fc.constantFrom('127.0.0.1', '::ffff:127.0.0.1', '::1', '10.1.2.3', 'nonsense'),
  facts: fc.record({
    address: optional(hex(64, 64).map((digits) => `b3:${digits}`)),
    name: optional(fc.constantFrom('a', 'a/b/c', 'photos/1', 'é/ü/x', 'two words')),
    label: optional(fc.constantFrom('a', 'b')),
    tenant: optional(fc.constantFrom('acme', 'globex')),
  }),
  facts_later: optional(fc.subarray(['address', 'name', 'label', 'tenant'] as const)),
  declared: fc.boolean(),
  body,
});
type Tried = typeof request extends fc.Arbitrary<infer T> ? T : never;

/** Both phases, as a service runs them. */
async function passes(bench: Bench, token: string, tried: Tried): Promise<boolean> {
  const context: Partial<AccessRequest> = {
    ...tried,
    body_bytes: tried.declared ? tried.body.length : undefined,
    body_hash: tried.declared ? `sha256:${sha256(tried.body)}` : undefined,
  };
  const verdict = await bench.check(token, context);
  if (!verdict.ok) return false;
  const { phase2 } = verdict;
  for (let at = 0; at < tried.body.length; at += 64) phase2.update(tried.body.subarray(at, at + 64));
  phase2.end();
  phase2.facts(tried.facts);
  return phase2.settle() === undefined;
}

/** Caveats that often match the request, so that enough requests are allowed for the property to be meaningful. */
const fitting = (tried: Tried): string[] => [
  `scopes in storage:get,storage:put`,
  `ip in 127.0.0.0/8,::1`,
  `bytes <= ${tried.body.length}`,
  `body = sha256:${sha256(tried.body)}`,
  `body = b3:${blake3(tried.body).toString('hex')}`,
  ...(tried.facts.address === undefined ? [] : [`address ^= ${tried.facts.address.slice(0, 10)}`]),
  ...(tried.facts.name === undefined ? [] : [`name ^= ${tried.facts.name.slice(0, 1)}`]),
  ...(tried.facts.tenant === undefined ? [] : [`tenant = ${tried.facts.tenant}`]),
];

test('one more caveat, of any or no known kind, never allows a refused request', async () => {
  const bench = new Bench();
  const root = await bench.token();
  const extra = fc.oneof(arbitraryCaveat.map(formatCaveat), fc.string({ maxLength: 40 }));
  let allowed = 0;
  let narrowed = 0;
  await fc.assert(
    fc.asyncProperty(
      request,
      fc.array(arbitraryCaveat, { maxLength: 1 }),
      fc.nat(8),
      extra,
      async (tried, first, fits, last) => {
        const before = attenuate(root, [...fitting(tried).slice(0, fits), ...first]);
        const decoded = decodeToken(before);
        assert.ok(decoded.ok);
        const after = encodeToken(addCaveat(decoded.value, Buffer.from(last)));
        const was = await passes(bench, before, tried);
        const is = await passes(bench, after, tried);
        assert.ok(was || !is, `${last} opened a door`);
        allowed += was ? 1 : 0;
        narrowed += was && !is ? 1 : 0;
      },
    ),
    { numRuns: numRuns * 3 },
  );
  assert.ok(allowed > numRuns / 10 && narrowed > 0, `too few requests were allowed to learn anything: ${allowed}`);
});

test('caveats that match the request do not refuse it', async () => {
  const bench = new Bench();
  const root = await bench.token();
  await fc.assert(
    fc.asyncProperty(request, async (tried) => {
      const good = { ...tried, scope: 'storage:put', source_ip: '127.0.0.1' } as const;
      assert.equal(await passes(bench, attenuate(root, fitting(good)), good), true);
    }),
    { numRuns },
  );
});

test('the order of caveats does not matter', async () => {
  const bench = new Bench();
  const root = await bench.token();
  const ceilings = fc.array(fc.nat(300), { maxLength: 2 });
  let allowed = 0;
  await fc.assert(
    fc.asyncProperty(request, ceilings, fc.nat(), async (tried, some, turn) => {
      const good = { ...tried, scope: 'storage:put', source_ip: '127.0.0.1' } as const;
      const caveats = [...fitting(good), ...some.map((bytes) => `bytes <= ${bytes}`)];
      const at = turn % caveats.length;
      const turned = [...caveats.slice(at), ...caveats.slice(0, at)].toReversed();
      const passed = await passes(bench, attenuate(root, caveats), good);
      assert.equal(await passes(bench, attenuate(root, turned), good), passed);
      allowed += passed ? 1 : 0;
    }),
    { numRuns },
  );
  assert.ok(allowed > numRuns / 10 && allowed < numRuns, `nothing to learn from ${allowed} of ${numRuns}`);
});
