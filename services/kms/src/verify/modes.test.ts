import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ALGORITHMS, type SigningAlg } from '@ron/custody';
import { isRonError } from '@ron/kernel';
import fc from 'fast-check';
import type { VerifyMode } from '@ron/proto';
import { defaultMode, effectiveMode, lacking, requireMode, type Checked } from './modes.ts';

const HYBRID = ALGORITHMS.hybrid.signs;
const good = (...algs: SigningAlg[]): Checked[] => algs.map((alg) => ({ alg, ok: true }));
const ORDER: readonly VerifyMode[] = ['or', 'pq_only', 'and'];

test('signatures that satisfy a stronger mode satisfy a weaker one', () => {
  const checked = fc.array(fc.record({ alg: fc.constantFrom(...HYBRID), ok: fc.boolean() }), { maxLength: 4 });
  fc.assert(
    fc.property(checked, (signatures) => {
      const enough = ORDER.map((mode) => lacking(mode, HYBRID, signatures) === undefined);
      assert.ok(!enough[2] || enough[1]);
      assert.ok(!enough[1] || enough[0]);
    }),
  );
});

test('each mode of a hybrid key', () => {
  assert.equal(lacking('or', HYBRID, good('ed25519')), undefined);
  assert.match(lacking('pq_only', HYBRID, good('ed25519'))!, /ml-dsa-65/);
  assert.match(lacking('and', HYBRID, good('ml-dsa-65'))!, /ed25519/);
  assert.equal(lacking('and', HYBRID, good('ed25519', 'ml-dsa-65')), undefined);
  assert.match(lacking('or', HYBRID, [{ alg: 'ed25519', ok: false }])!, /no signature/);
  assert.match(lacking('pq_only', ['ed25519'], good('ed25519'))!, /post-quantum/);
});

test('a request can strengthen the mode but not weaken it', () => {
  for (const [at, verify_mode] of ORDER.entries()) {
    const key = { name: 'k', verify_mode };
    assert.equal(effectiveMode(key, undefined), verify_mode);
    for (const [asked, mode] of ORDER.entries()) {
      if (asked >= at) assert.equal(effectiveMode(key, mode), mode);
      else
        assert.throws(
          () => effectiveMode(key, mode),
          (error) => isRonError(error, 'reject_policy'),
        );
    }
  }
  assert.equal(defaultMode('hybrid'), 'and');
  assert.equal(defaultMode('ed25519'), 'or');
});

test('a key cannot have a mode that its signatures cannot satisfy', () => {
  const isRefused = (error: unknown): boolean => isRonError(error, 'validation');
  for (const mode of ORDER) {
    requireMode('hybrid', mode);
    requireMode('ml-dsa-44', mode);
    assert.throws(() => requireMode('x-wing', mode), isRefused);
  }
  requireMode('ed25519', 'and');
  requireMode('x-wing', undefined);
  assert.throws(() => requireMode('ed25519', 'pq_only'), isRefused);
});
