import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { changes } from './watch.model.ts';
import { Watch } from './watch.ts';

const END = ['open', 'close'] as const;
const SMALL = { changes: 2, receivers: 1, end: END };

test('no change is missed under any cancellation, and each answer is the latest value', async () => {
  await assertHolds(changes(Watch, { changes: 3, receivers: 1, end: END }));
  await assertHolds(changes(Watch, { changes: 2, receivers: 2, end: ['close'] }), {
    hash: true,
    smaller: changes(Watch, SMALL),
  });
});

const MUTANTS = [
  {
    bug: 'changed waits without looking whether there was a change since the last call',
    find: 'if (this.#seen_version !== state.version) return',
    replace: 'if (state.closed) return',
    caught: 'deadlock',
  },
  {
    bug: 'the value that woke a waiter is given, not the latest',
    find: 'return state.waiters.park(signal, this).then(() => this.#see());',
    replace: `const { version } = state;
    return state.waiters.park(signal, this).then(() => {
      this.#seen_version = version + 1;
      return (version + 1) as T;
    });`,
    caught: /not the latest value/,
  },
  {
    bug: 'a wait marks the next change as seen before it has come',
    find: 'if (state.closed) return Promise.reject(closedError(state.name));\n',
    replace: 'if (state.closed) return Promise.reject(closedError(state.name));\n    this.#seen_version += 1;\n',
    caught: /not a change/,
  },
  {
    bug: 'close hides a change that was not seen yet',
    find: 'if (this.#closed) return Promise',
    replace: 'if (this.#closed || state.closed) return Promise',
    caught: /^task: watch config is closed/,
  },
] as const;

for (const { bug, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ Watch: typeof Watch }>(import.meta.resolve('./watch.ts'), find, replace);
    await assertCaught(changes(broken.Watch, SMALL), {}, caught);
  });
}

test('caught: a change wakes only the first who waits', async () => {
  const broken = await mutant<{ Watch: typeof Watch }>(
    import.meta.resolve('./watch.ts'),
    'while (state.waiters.size > 0) state.waiters.wakeFirst();',
    'if (state.waiters.size > 0) state.waiters.wakeFirst();',
  );
  await assertCaught(changes(broken.Watch, { changes: 1, receivers: 2, end: END }), {}, 'deadlock');
});
