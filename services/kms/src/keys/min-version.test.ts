import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import fc from 'fast-check';
import type { KeyRecord } from './key-record.ts';
import { effectiveAt_ms, minDataVersion, RAISES_MAX, withMinVersion } from './min-version.ts';

const HOUR_MS = 3_600_000;
const WAIT_MS = 7 * 24 * HOUR_MS;
const START_MS = 1_000_000 * HOUR_MS;

const keyOf = (versions: number, min_version = 1): KeyRecord => ({
  name: 'acme/docs/aes-256-gcm/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10',
  tenant: 'acme',
  purpose: 'docs',
  alg: 'aes-256-gcm',
  verify_mode: 'or',
  min_version,
  imported: false,
  versions: Array.from({ length: versions }, (_, at) => ({ version: at + 1, public: [], created_ms: 0 })),
});

const isRefused = (error: unknown): boolean => isRonError(error, 'conflict');

test('a raise applies to signatures at once, and to data after the waiting period', () => {
  const raised = withMinVersion(keyOf(3), 3, START_MS, WAIT_MS);
  assert.equal(raised.min_version, 3);
  assert.equal(minDataVersion(raised, START_MS + WAIT_MS - 1), 1);
  assert.equal(effectiveAt_ms(raised, START_MS), START_MS + WAIT_MS);
  assert.equal(minDataVersion(raised, START_MS + WAIT_MS), 3);
  assert.equal(effectiveAt_ms(raised, START_MS + WAIT_MS), undefined);
});

test('the stated date is the one at which the next version becomes unreadable, not that of the last raise', () => {
  const first = withMinVersion(keyOf(3), 2, START_MS, WAIT_MS);
  const second = withMinVersion(first, 3, START_MS + WAIT_MS - HOUR_MS, WAIT_MS);
  const date_ms = effectiveAt_ms(second, START_MS + WAIT_MS - HOUR_MS)!;
  assert.deepEqual(
    [date_ms - 1, date_ms].map((now_ms) => minDataVersion(second, now_ms)),
    [1, 2],
  );
  assert.equal(effectiveAt_ms(second, date_ms), START_MS + 2 * WAIT_MS - HOUR_MS);
});

test('a raise can be undone during its wait, not after it, and leaves no trace', () => {
  const before = keyOf(3, 2);
  const raised = withMinVersion(before, 3, START_MS, WAIT_MS);
  assert.deepEqual(withMinVersion(raised, 2, START_MS + WAIT_MS - 1, WAIT_MS), before);
  assert.throws(() => withMinVersion(raised, 1, START_MS, WAIT_MS), isRefused);
  assert.throws(() => withMinVersion(raised, 2, START_MS + WAIT_MS, WAIT_MS), isRefused);
  assert.throws(() => withMinVersion(raised, 4, START_MS, WAIT_MS), isRefused);
});

test('a key without raises has one minimum, as it was stored before raises had a wait', () => {
  assert.equal(minDataVersion(keyOf(3, 2), 0), 2);
});

test('a clock that is set back by an hour destroys nothing early, and one ahead nothing for good', () => {
  const first = withMinVersion(keyOf(3), 2, START_MS, WAIT_MS);
  const second = withMinVersion(first, 3, START_MS - HOUR_MS, WAIT_MS);
  assert.equal(minDataVersion(second, START_MS + WAIT_MS - 1), 1, 'version 2 does not end before version 1');
  assert.equal(minDataVersion(first, START_MS + WAIT_MS), 2);
  assert.equal(minDataVersion(first, START_MS + WAIT_MS - HOUR_MS), 1, 'the wait resumes when the clock is corrected');
});

/** The rule in its plainest form: each version has the time from which it no longer unwraps. */
class Oracle {
  min_version = 1;
  readonly ends_ms = new Map<number, number>();

  least(now_ms: number): number {
    const ended = [...this.ends_ms].filter(([, end_ms]) => end_ms <= now_ms).map(([version]) => version);
    return Math.max(0, ...ended) + 1;
  }

  set(min_version: number, now_ms: number): void {
    for (let version = this.min_version; version < min_version; version++) this.ends_ms.set(version, now_ms + WAIT_MS);
    for (const version of this.ends_ms.keys()) if (version >= min_version) this.ends_ms.delete(version);
    this.min_version = min_version;
  }
}

test('any sequence of raises and lowerings, with restarts, gives each version its own full wait', () => {
  const steps = fc.array(
    fc.record({ min_version: fc.integer({ min: 1, max: 9 }), pause_ms: fc.integer({ min: 0, max: WAIT_MS / 2 }) }),
    { maxLength: RAISES_MAX },
  );
  fc.assert(
    fc.property(steps, (changes) => {
      const oracle = new Oracle();
      let record = keyOf(8);
      let now_ms = START_MS;
      for (const { min_version, pause_ms } of changes) {
        now_ms += pause_ms;
        // A restart reads the record back.
        record = JSON.parse(JSON.stringify(record)) as KeyRecord;
        const least = oracle.least(now_ms);
        assert.equal(minDataVersion(record, now_ms), least);
        if (min_version < least || min_version > 8) {
          assert.throws(() => withMinVersion(record, min_version, now_ms, WAIT_MS), isRefused);
          continue;
        }
        record = withMinVersion(record, min_version, now_ms, WAIT_MS);
        oracle.set(min_version, now_ms);
        assert.equal(record.min_version, min_version);
        for (const end_ms of oracle.ends_ms.values()) {
          assert.equal(minDataVersion(record, end_ms - 1), oracle.least(end_ms - 1));
          assert.equal(minDataVersion(record, end_ms), oracle.least(end_ms));
        }
      }
    }),
    { numRuns: 2000 },
  );
});

test('more raises than fit extend the wait of the last and never shorten one', () => {
  let record = keyOf(100);
  for (let version = 2; version <= 60; version++) {
    record = withMinVersion(record, version, START_MS + version, WAIT_MS);
    assert.ok(record.raising!.steps.length <= RAISES_MAX);
  }
  assert.equal(minDataVersion(record, START_MS + 2 + WAIT_MS - 1), 1);
  assert.equal(minDataVersion(record, START_MS + 2 + WAIT_MS), 2);
  assert.equal(minDataVersion(record, START_MS + 60 + WAIT_MS - 1), RAISES_MAX);
  assert.equal(minDataVersion(record, START_MS + 60 + WAIT_MS), 60);
  const later = withMinVersion(record, 61, START_MS + 2 * WAIT_MS, WAIT_MS);
  assert.deepEqual(later.raising, { from: 60, steps: [{ min_version: 61, effective_ms: START_MS + 3 * WAIT_MS }] });

  // Those in force make room; those in their wait keep their times.
  const half_ms = START_MS + 10 + WAIT_MS;
  const joined = withMinVersion(record, 61, half_ms, WAIT_MS);
  assert.deepEqual(
    joined.raising!.steps.slice(0, -1),
    record.raising!.steps.filter(({ effective_ms }) => effective_ms > half_ms),
  );
  assert.equal(minDataVersion(joined, half_ms), minDataVersion(record, half_ms));
});
