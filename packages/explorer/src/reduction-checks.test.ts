import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, touch } from '@ron/kernel/sched';
import { assertReductionsAgree, endings, explore, type Build } from './index.ts';
import { independent, Variable } from '../test/shared-variable.ts';

const waves =
  (isShared: boolean): Build =>
  (world) => {
    const variables = [new Variable(), new Variable(), new Variable()];
    for (const variable of variables) touch(variable);
    for (const [index, own] of variables.entries()) {
      const variable = isShared ? (variables[0] as Variable) : own;
      world.task(`task ${index}`, async () => {
        const seen = variable.value;
        await Promise.resolve();
        variable.value = seen + index + 1;
      });
    }
    return { state: () => variables.map(({ value }) => value).join() };
  };

test('sleep sets try turns of several steps only for steps that touch the same', async () => {
  const [plain, shared, separate] = [
    await explore(waves(true)),
    await explore(waves(true), { sleepSets: true }),
    await explore(waves(false), { sleepSets: true }),
  ];
  assert.equal(plain.complete && shared.complete && separate.complete, true);
  assert.ok(shared.schedules <= plain.schedules);
  assert.equal(separate.schedules, 1);
  for (const isShared of [true, false]) await assertReductionsAgree(waves(isShared));
});

test('a reduction without a cross-check is refused, and one that loses an ending is found out', async () => {
  const large: Build = (world) => {
    const done: string[] = [];
    for (const name of ['a', 'b', 'c', 'd']) {
      world.task(name, async () => {
        for (let step = 0; step < 3; step++) await world.io('step');
        done.push(name);
      });
    }
    return { state: () => done.toSorted().join() };
  };
  const small: Build = (world) => {
    world.task('a', async () => {});
    return { state: () => '' };
  };
  await assert.rejects(explore(large, { hash: true }), /needs a cross-check.* Pass \{ smaller \}/);
  assert.equal((await explore(large, { hash: true, smaller: small })).complete, true);
  await assert.rejects(explore(small, { hash: true, smaller: forgetful }), /hash lost \d+ of \d+ endings/);
});

test('a state that was reached with more preemptions, or by another task, is explored again', async () => {
  const build: Build = (world) => {
    const log: string[] = [];
    let hasBegun = false;
    world.task('a', async () => {
      await world.io('look');
      log.push(hasBegun ? 'saw' : 'missed');
      await world.io('end');
      log.push('a');
    });
    world.task('b', async () => {
      hasBegun = true;
      await world.io('end');
      log.push('b');
    });
    return { state: () => `${log.join(' ')}${hasBegun ? '!' : ''}` };
  };
  // Found last in the search: b begins; a begins, looks; b ends; a ends.
  assert.ok((await endings(build, { preemptions: 2 })).has('state saw b a!'));
  for (const preemptions of [0, 1, 2, 3]) {
    assert.deepEqual(await endings(build, { preemptions, hash: true }), await endings(build, { preemptions }));
  }
});

/** Its state leaves out the value that the reader has seen. */
const forgetful: Build = (world) => {
  const ended = sched.park<void>('the end of writer');
  let count = 0;
  let result = -1;
  world.task('reader', async () => {
    const seen = count;
    await world.io('think');
    await ended.promise;
    result = seen;
  });
  world.task('writer', async () => {
    count = 1;
    await world.io('undo');
    count = 0;
    await world.io('end');
    ended.wake();
  });
  return { state: () => `${count} ${result}` };
};

test('a state that leaves out the memory of a task is detected', async () => {
  const options = { name: 'forgetful' };
  await assert.rejects(assertReductionsAgree(forgetful, options), /forgetful: hash lost 1 of 2 endings: state 0 \d/);
});

test('shared data that is not announced is found out', async () => {
  const silent: Build = (world) => {
    const announced = [new Variable(), new Variable()];
    for (const variable of announced) touch(variable);
    let last = '';
    announced.forEach((variable, index) => {
      world.task(`task ${index}`, async () => {
        variable.value++;
        last = `task ${index}`;
      });
    });
    return { state: () => last };
  };
  await assert.rejects(assertReductionsAgree(silent), /sleepSets lost 1 of 2 endings/);
});

test('impossible combinations are refused', async () => {
  await assert.rejects(explore(independent(1, 1), { sleepSets: true, preemptions: 1 }), /exclude each other/);
  await assert.rejects(
    explore(() => ({}), { hash: true }),
    /hash needs a model with state/,
  );
});
