import { test } from 'node:test';
import { assertCaught, assertHolds, mutant, type Build } from '@ron/explorer';
import * as real from './supervisor.ts';
import { killAgainstShutdown, oneShotsWhileDraining, restartAgainstShutdown } from './supervisor.model.ts';
import type { SupervisorModule } from './supervisor.model.ts';

const MODULE = new URL('./supervisor.ts', import.meta.url).href;
const broken = (find: string, replace: string): Promise<SupervisorModule> => mutant(MODULE, find, replace);

const single = (module: SupervisorModule): Build =>
  restartAgainstShutdown(module, 1, ['crashes', 'obeys the stop', 'obeys the abort']);

const POOL = 'the same for a pool of two';
const MODELS = {
  'no restart after a stop, no task alive after it': single,
  [POOL]: (module: SupervisorModule) => restartAgainstShutdown(module, 2, ['crashes']),
  'a kill is one crash, and never outlives a stop': killAgainstShutdown,
  'one-shots started while draining are waited for': oneShotsWhileDraining,
};

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    const { schedules, pruned, steps, depth_max } = await assertHolds(model(real), {
      name,
      hash: true,
      smaller: name === POOL ? single(real) : model(real),
    });
    t.diagnostic(`${schedules} schedules and ${pruned} known, ${steps} steps, at most ${depth_max} deep`);
  });
}

test('caught: a task whose start is overtaken by the stop starts all the same', async () => {
  const module = await broken("if (this.#phase === 'running') await", 'await');
  await assertCaught(single(module), {}, /nothing started|started after/);
});

test('caught: a restart that was pending at the stop stays pending', async () => {
  const module = await broken('this.#cancelRestart(instance);', '');
  await assertCaught(single(module), {}, /is restarting after the stop/);
});

test('caught: a crash while draining restarts the task', async () => {
  const module = await broken(
    "if (this.#phase !== 'running') {\n      instance.state",
    "if (this.#phase === 'stopped') {\n      instance.state",
  );
  await assertCaught(single(module), {}, /after the stop/);
});

test('caught: the drain has no end', async () => {
  const module = await broken("() => this.#wakeStop(), 'supervisor.stop'", "() => {}, 'supervisor.stop'");
  await assertCaught(single(module), {}, 'deadlock');
});

test('caught: the end of the last task does not wake the stop, and its timer is gone', async () => {
  const module = await broken('wait?.parked.wake();', '');
  await assertCaught(single(module), {}, 'deadlock');
});

test('caught: a one-shot that comes after the last wake is aborted although the drain is not over', async () => {
  const module = await broken('while (this.#live > 0 && sched.now_ms() < this.#drain_ends_ms)', 'if (this.#live > 0)');
  await assertCaught(oneShotsWhileDraining(module), {}, /before the drain was over/);
});

test('caught: one-shots are accepted after the stop', async () => {
  const module = await broken("if (this.#phase === 'aborting' || this.#phase === 'stopped')", 'if (false)');
  await assertCaught(oneShotsWhileDraining(module), {}, /only aborted tasks/);
});

test('caught: a killed task that returns counts as done', async () => {
  const module = await broken('killed !== undefined || failure !== undefined', 'failure !== undefined');
  await assertCaught(killAgainstShutdown(module), {}, /worker is done/);
});
