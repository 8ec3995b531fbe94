import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { NO_REVOCATIONS, subjectTag, type RevocationDocument } from '../revocations/revocations.ts';
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
  #answer = Promise.withResolvers<unknown>();
  #question = Promise.withResolvers<void>();

  watch(t: TestContext, init: Partial<RevocationWatchInit> = {}): RevocationWatch {
    const watch = new RevocationWatch({
      ask: (after, signal) => {
        this.asked.push(after);
        this.#question.resolve();
        const left = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
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
  async answers(document: RevocationDocument): Promise<void> {
    await this.#question.promise;
    const answer = this.#answer;
    this.#answer = Promise.withResolvers();
    this.#question = Promise.withResolvers();
    answer.resolve(document);
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
