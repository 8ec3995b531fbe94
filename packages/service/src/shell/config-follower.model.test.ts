import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { ConfigFollower } from './config-follower.ts';
import { configSwap } from './config-follower.model.ts';

const SMALL = { reloads: 1, requests: 1, stops: false };
const TWICE = { reloads: 2, requests: 0, stops: false };

test('a request finds one whole configuration, and a reload ends when the newest is applied', async () => {
  await assertHolds(configSwap(ConfigFollower, SMALL));
  await assertHolds(configSwap(ConfigFollower, TWICE));
});

test('a stop at any moment: nothing is applied afterwards', async () => {
  await assertHolds(configSwap(ConfigFollower, { reloads: 1, requests: 0, stops: true }));
});

const MUTANTS = [
  {
    bug: 'the new configuration is written into the one that requests hold',
    find: 'if (next !== config.value) config.set(next);',
    replace: 'Object.assign(config.value as object, next);',
    caught: 'task',
  },
  {
    bug: 'runs of apply overlap',
    find: 'this.#last.then(() => this.#apply(signal, isForced))',
    replace: 'this.#apply(signal, isForced)',
    init: TWICE,
    caught: 'task',
  },
  {
    bug: 'the stop is not checked',
    find: "if (shutdown.value) throw new RonError('draining', 'the service is stopping: the configuration is not applied');",
    replace: '',
    init: { reloads: 1, requests: 0, stops: true },
    caught: 'task',
  },
] as const;

for (const { bug, find, replace, caught, ...more } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ ConfigFollower: typeof ConfigFollower }>(
      import.meta.resolve('./config-follower.ts'),
      find,
      replace,
    );
    await assertCaught(configSwap(broken.ConfigFollower, 'init' in more ? more.init : SMALL), {}, caught);
  });
}
