import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { NO_REVOCATIONS, subjectTag, type RevocationDocument } from '../revocations/revocations.ts';
import { sched } from '@ron/kernel';
import { TestClock } from '../../test/support.ts';
import { CLOCK_SKEW_MS } from '../revocations/epochs.ts';
import type { OpenedAnswer } from '../revocations/revocation-answer.ts';
import { RevocationWatch, type RevocationWatchInit } from './revocation-watch.ts';

const revoked = (version: number, subjects: Record<string, number>, all = 0): RevocationDocument => ({
  version,
  all,
  subjects: Object.fromEntries(Object.entries(subjects).map(([name, epoch]) => [subjectTag(name), epoch])),
  ids: {},
});

/** A passport that answers each poll with a result of the test, and records the polls. */
class Passport {
  readonly asked: (number | undefined)[] = [];
  readonly problems: unknown[] = [];
  readonly kept: RevocationDocument[] = [];
  #answer = Promise.withResolvers<OpenedAnswer>();
  #question = Promise.withResolvers<void>();

  watch(t: TestContext, init: Partial<RevocationWatchInit> = {}): RevocationWatch {
    const watch = new RevocationWatch({
      ask: (after, signal) => {
        this.asked.push(after);
        this.#question.resolve();
        const left = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
        return Promise.race([this.#answer.promise, left]);
      },
      keep: (document) => Promise.resolve(void this.kept.push(document)),
      onProblem: (error) => this.problems.push(error),
      ...init,
    });
    const stop = new AbortController();
    const running = watch.run(stop.signal).catch(() => undefined);
    t.after(async () => {
      stop.abort();
      await running;
    });
    return watch;
  }

  /** Resolves when the answer was processed and the next poll has begun. */
  async answers(document: RevocationDocument | undefined, time_ms = sched.wall_ms()): Promise<void> {
    await this.#question.promise;
    const answer = this.#answer;
    this.#answer = Promise.withResolvers();
    this.#question = Promise.withResolvers();
    answer.resolve({ document, time_ms });
    await this.#question.promise;
  }
}

test('before the first answer, capabilities of passport are refused; those of the node use the stored revocations', async (t) => {
  const passport = new Passport();
  const watch = passport.watch(t, { known: revoked(5, { alice: 100, root: 7 }) });
  for (const subject of ['alice', 'bob', '-']) assert.throws(() => watch.floor(subject), { code: 'not_ready' });
  assert.equal(watch.floor('root'), 7);
  assert.equal(watch.floor('svc-passport'), 0);
  assert.match(watch.problem!, /since the start/);
  await passport.answers(revoked(6, { alice: 100, bob: 200, root: 7 }));
  assert.deepEqual([watch.floor('alice'), watch.floor('bob'), watch.floor('carol')], [100, 200, 0]);
  assert.equal(watch.problem, undefined);
  assert.deepEqual(passport.asked, [undefined, 6]);
  assert.deepEqual(passport.kept.at(-1), revoked(6, { alice: 100, bob: 200, root: 7 }));
});

test('a restored passport undoes no revocation, is reported once, and recovers when its version has caught up', async (t) => {
  const passport = new Passport();
  const watch = passport.watch(t, { known: revoked(9, { alice: 100 }) });
  await passport.answers(revoked(4, { zoe: 3 }));
  assert.deepEqual([watch.floor('alice'), watch.floor('zoe')], [100, 3]);
  assert.match(watch.problem!, /restored to an earlier state \(version 4 after 9\)/);
  assert.equal(watch.isRolledBack, true);
  await passport.answers(NO_REVOCATIONS);
  assert.equal(watch.floor('alice'), 100);
  assert.equal(passport.problems.length, 1, 'one line');
  assert.deepEqual(passport.asked, [undefined, 4, 0], 'the poll names the version of passport, which can hold it');
  assert.equal(passport.kept.at(-1)!.version, 9, 'stored for the next start');
  await passport.answers(revoked(10, {}, 500));
  assert.equal(watch.problem, undefined);
  assert.equal(watch.floor('alice'), 500);
});

test('a clock an hour ahead or behind: capabilities of passport are refused, those of the node are not, and it recovers', async (t) => {
  using clock = new TestClock();
  const start_ms = clock.wall_ms;
  const passport = new Passport();
  const watch = passport.watch(t);
  const good = revoked(start_ms, { bob: start_ms });
  await passport.answers(good);
  assert.equal(watch.floor('alice'), 0);
  for (const [ahead_ms, where] of [
    [3_600_000, 'ahead of'],
    [-3_600_000, 'behind'],
  ] as const) {
    // The clock of passport is wrong; then the clock of this service.
    await passport.answers(undefined, start_ms + ahead_ms);
    assert.throws(() => watch.floor('alice'), { code: 'not_ready', message: new RegExp(`3600 s ${where} the clock`) });
    assert.match(watch.problem!, /set the clocks/);
    assert.equal(watch.floor('root'), 0);
    await passport.answers(undefined);
    assert.equal(watch.floor('alice'), 0);
    clock.wall_ms = start_ms - ahead_ms;
    await passport.answers(undefined, start_ms);
    assert.throws(() => watch.floor('alice'), { code: 'not_ready' });
    assert.equal(watch.floor('svc-kms'), 0);
    clock.wall_ms = start_ms;
    await passport.answers(undefined);
    assert.deepEqual([watch.floor('alice'), watch.floor('bob'), watch.problem], [0, start_ms, undefined]);
  }
});

test('a document with a time from the future is refused whole, and the next one takes effect at once', async (t) => {
  using clock = new TestClock();
  const now_ms = clock.wall_ms;
  const late_ms = now_ms + 2 * CLOCK_SKEW_MS + 1;
  const passport = new Passport();
  const watch = passport.watch(t);
  await passport.answers(revoked(1, {}));
  const future = [
    revoked(late_ms, { root: 5 }),
    revoked(2, { root: 5 }, late_ms),
    revoked(2, { root: 5, bob: late_ms }),
    { ...revoked(2, { root: 5 }), ids: { ['i'.repeat(22)]: late_ms } },
  ];
  for (const document of future) {
    await passport.answers(document);
    assert.equal(watch.floor('root'), 0, 'nothing of it was applied');
    assert.equal(watch.isRevoked('i'.repeat(22)), false);
    assert.throws(() => watch.floor('alice'), { code: 'not_ready', message: /120 s in the future/ });
  }
  assert.equal(watch.refused_total, 4);
  await passport.answers(revoked(3, { alice: now_ms }));
  assert.deepEqual([watch.floor('alice'), watch.floor('root'), watch.problem], [now_ms, 0, undefined]);
  assert.deepEqual(
    passport.kept.map(({ version }) => version),
    [1, 3],
    'only accepted documents are stored',
  );
});

test('stored revocations from the future are not used', async (t) => {
  using clock = new TestClock();
  const passport = new Passport();
  const watch = passport.watch(t, { known: revoked(clock.wall_ms + 3_600_000, { root: 9 }) });
  assert.equal(watch.floor('root'), 0);
  assert.match(String(passport.problems[0]), /3600 s in the future/);
  await passport.answers(revoked(clock.wall_ms, { alice: 7 }));
  assert.deepEqual([watch.floor('alice'), watch.problem], [7, undefined]);
});
