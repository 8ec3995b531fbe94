import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, NEVER, Watch } from '@ron/kernel';
import { ConfigFollower, type ConfigFollowerInit } from './config-follower.ts';

interface Config {
  readonly name: string;
}

interface Bench {
  readonly source: { readonly watch: Watch<Config>; readonly value: Config };
  readonly config: Watch<Config>;
  readonly shutdown: Watch<boolean>;
  readonly problems: unknown[];
  readonly follower: (apply?: ConfigFollowerInit<Config>['apply']) => ConfigFollower<Config>;
}

function bench(): Bench {
  const first = { name: 'first' };
  const watch = new Watch<Config>('source', first);
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const config = new Watch<Config>('config', first);
  const shutdown = new Watch('shutdown', false);
  const problems: unknown[] = [];
  const onProblem = (error: unknown): void => void problems.push(error);
  const init = { source, config, shutdown, onProblem };
  const follower: Bench['follower'] = (apply) => new ConfigFollower({ ...init, ...(apply && { apply }) });
  return { source, config, shutdown, problems, follower };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Runs it until `body` has ended. */
async function running(follower: ConfigFollower<Config>, body: () => Promise<void>): Promise<void> {
  const stop = new AbortController();
  const run = follower.run(stop.signal).catch(() => undefined);
  await body();
  stop.abort();
  await run;
}

test('each published configuration is readable and applied, in order', async () => {
  const { source, config, follower } = bench();
  const applied: string[] = [];
  await running(
    follower(async ({ name }) => void applied.push(`${name} while ${config.value.name}`)),
    async () => {
      for (const name of ['second', 'third']) {
        source.watch.set({ name });
        await turn();
      }
    },
  );
  assert.deepEqual(applied, ['second while second', 'third while third']);
});

test('a configuration that was published before the task ran is not missed', async () => {
  for (const isEarly of [true, false]) {
    const { source, config, follower } = bench();
    if (isEarly) source.watch.set({ name: 'second' });
    const made = follower();
    if (!isEarly) source.watch.set({ name: 'second' });
    await running(made, turn);
    assert.equal(config.value.name, 'second');
  }
});

test('it is applied by one run at a time, and one that is replaced before its turn is skipped', async () => {
  const { source, follower } = bench();
  const begun: string[] = [];
  let active = 0;
  const gate = Promise.withResolvers<void>();
  const made = follower(async ({ name }) => {
    assert.equal((active += 1), 1);
    begun.push(name);
    await gate.promise;
    active -= 1;
  });
  await running(made, async () => {
    source.watch.set({ name: 'second' });
    await turn();
    source.watch.set({ name: 'skipped' });
    const reloaded = made.reload(NEVER);
    await turn();
    source.watch.set({ name: 'last' });
    gate.resolve();
    await reloaded;
    await turn();
  });
  assert.deepEqual(begun, ['second', 'last']);
});

test('a reload applies an unchanged configuration again, and rejects when that fails', async () => {
  const { follower, problems } = bench();
  let applied = 0;
  const made = follower(async () => {
    applied += 1;
    if (applied === 2) throw new Error('no disk');
  });
  await made.reload(NEVER);
  assert.equal(made.problem, undefined);
  await assert.rejects(made.reload(NEVER), /no disk/);
  assert.match(made.problem!, /no disk/);
  await made.reload(NEVER);
  assert.equal(made.problem, undefined);
  assert.equal(applied, 3);
  assert.deepEqual(problems, []);
});

test('a failure is reported, and the next configuration is applied all the same', async () => {
  const { source, config, follower, problems } = bench();
  const made = follower(async ({ name }) => {
    if (name === 'bad') throw new Error('no disk');
  });
  await running(made, async () => {
    for (const name of ['bad', 'good']) {
      source.watch.set({ name });
      await turn();
    }
  });
  assert.deepEqual(problems.map(String), ['Error: no disk']);
  assert.equal(config.value.name, 'good');
});

test('once the service stops, nothing is applied', async () => {
  const { source, config, shutdown, follower } = bench();
  const made = follower(() => assert.fail('applied'));
  await running(made, async () => {
    shutdown.set(true);
    source.watch.set({ name: 'second' });
    await turn();
    await assert.rejects(made.reload(NEVER), (error) => isRonError(error, 'draining'));
  });
  assert.equal(config.value.name, 'first');
});
