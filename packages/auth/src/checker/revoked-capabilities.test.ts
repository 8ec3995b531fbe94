/** No capability survives the revocation of its id, of an issuer, of its subject, or of all. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Bench, TestClock } from '../../test/support.ts';
import { attenuate, inspectToken } from '../capability/capability.ts';
import { CLOCK_SKEW_MS, floorAt } from '../revocations/epochs.ts';
import { NO_REVOCATIONS, Revocations, subjectTag } from '../revocations/revocations.ts';

const HOUR_MS = 3_600_000;
const idOf = (at: number): string => String(at).padStart(22, 'i');

test('a revoked id refuses the capability, its attenuations and all that was issued from it, even if cached', async () => {
  const epochs = new Revocations();
  const bench = new Bench({ epochs });
  const issuer = await bench.token({ subject: 'alice' });
  const { capability_id } = inspectToken(issuer);
  const tokens = [
    issuer,
    attenuate(issuer, ['scopes in storage:get']),
    await bench.token({ subject: 'bob', chain: [capability_id] }),
    await bench.token({ subject: 'carol', chain: [idOf(1), idOf(2), capability_id] }),
  ];
  const other = await bench.token({ subject: 'alice' });
  for (const token of tokens) await bench.allowed(token);
  epochs.apply({ ...NO_REVOCATIONS, version: 1, ids: { [capability_id]: Date.now() } });
  for (const token of tokens) assert.equal((await bench.refused(token)).reason, 'capability was revoked');
  const grant = await bench.allowed(other);
  assert.deepEqual([grant.subject, grant.chain], ['alice', []]);
});

test('no capability with a revoked ancestor is accepted, for any chains and documents', async () => {
  const ids = fc.integer({ min: 0, max: 5 }).map(idOf);
  const chain = fc.array(ids, { maxLength: 4 });
  const documents = fc.array(fc.uniqueArray(ids, { maxLength: 3 }), { maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(fc.array(chain, { minLength: 1, maxLength: 4 }), documents, async (chains, revocations) => {
      const epochs = new Revocations();
      const bench = new Bench({ epochs });
      const tokens = await Promise.all(
        chains.map(async (each) => ({ each, token: await bench.token({ chain: each }) })),
      );
      const revoked = new Set<string>();
      for (const [at, some] of revocations.entries()) {
        // Documents arrive in any order of version: none undoes another.
        const document = {
          ...NO_REVOCATIONS,
          version: (at * 7) % 5,
          ids: Object.fromEntries(some.map((id) => [id, Date.now()])),
        };
        epochs.apply(document);
        for (const id of some) revoked.add(id);
        for (const { each, token } of tokens)
          assert.equal((await bench.check(token)).ok, !each.some((id) => revoked.has(id)));
      }
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 100) },
  );
});

test('revoking all refuses every capability that exists, with any epoch, at every later time', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: -2 * HOUR_MS, max: 2 * HOUR_MS }), { minLength: 1, maxLength: 6 }),
      fc.integer({ min: 0, max: 3 * HOUR_MS }),
      async (offsets, later_ms) => {
        using clock = new TestClock();
        const start_ms = clock.wall_ms;
        const epochs = new Revocations();
        const bench = new Bench({ epochs });
        const tokens: string[] = [];
        for (const offset of offsets) {
          // The issuer's clock may be wrong by hours.
          clock.wall_ms = start_ms + offset;
          tokens.push(await bench.token({ subject: 'alice', epoch: clock.wall_ms, ttl_ms: 24 * HOUR_MS }));
        }
        clock.wall_ms = start_ms;
        for (const [at, token] of tokens.entries())
          assert.equal((await bench.check(token)).ok, offsets[at]! <= CLOCK_SKEW_MS, 'from the future');
        epochs.apply({ ...NO_REVOCATIONS, version: 1, all: floorAt(start_ms) });
        const next = await bench.token({ subject: 'alice', epoch: floorAt(start_ms - 1), ttl_ms: 24 * HOUR_MS });
        assert.equal((await bench.check(next)).ok, false);
        clock.wall_ms = start_ms + later_ms;
        for (const [at, token] of tokens.entries()) {
          const { ok } = await bench.check(token);
          if (offsets[at]! <= CLOCK_SKEW_MS) assert.equal(ok, false);
        }
      },
    ),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 100) },
  );
});

test('after the clock was set back, capabilities of passport wait; those of the node work; it recovers by itself', async () => {
  using clock = new TestClock();
  const start_ms = clock.wall_ms;
  const epochs = new Revocations();
  const bench = new Bench({ epochs });
  const day = { ttl_ms: 24 * HOUR_MS };
  const alice = await bench.token({ subject: 'alice', epoch: start_ms, ...day });
  const node = await bench.token({ subject: 'svc-storage', epoch: start_ms, ...day });
  const root = await bench.token({ subject: 'root', epoch: start_ms - 10, ...day });
  const { capability_id } = inspectToken(root);
  clock.wall_ms = start_ms + HOUR_MS;
  epochs.apply({
    version: clock.wall_ms,
    all: 0,
    subjects: { [subjectTag('bob')]: clock.wall_ms, [subjectTag('svc-storage')]: 5 },
    ids: { [capability_id]: clock.wall_ms },
  });
  await bench.allowed(alice);
  clock.wall_ms = start_ms;
  await assert.rejects(bench.check(alice), { code: 'not_ready', message: /3600 s in the future: set the clock/ });
  assert.match(epochs.problem!, /3600 s in the future/);
  await bench.allowed(node);
  await bench.refused(root);
  clock.wall_ms = start_ms + HOUR_MS - 2 * CLOCK_SKEW_MS;
  await bench.allowed(alice);
  assert.equal(epochs.problem, undefined);
});

test('an id is dropped once every capability with it has expired', () => {
  using clock = new TestClock();
  const epochs = new Revocations();
  epochs.apply({ ...NO_REVOCATIONS, version: 1, ids: { [idOf(1)]: clock.wall_ms } });
  clock.wall_ms += 366 * 24 * HOUR_MS + CLOCK_SKEW_MS;
  epochs.apply({ ...NO_REVOCATIONS, version: 2 });
  assert.equal(epochs.isRevoked(idOf(1)), true);
  clock.wall_ms += 1;
  epochs.apply({ ...NO_REVOCATIONS, version: 3 });
  assert.equal(epochs.isRevoked(idOf(1)), false);
});
