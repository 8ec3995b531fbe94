import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sleep } from '@ron/kernel/sched';
import {
  assertCaught,
  assertHolds,
  assertHoldsWithin,
  describeFailure,
  explore,
  ModelError,
  replay,
  type Build,
  type Options,
} from './index.ts';
import { decodeSeed, encodeSeed } from './seed.ts';

interface Shape {
  readonly tasks?: number;
  readonly label?: string;
  readonly fixed?: boolean;
}

/** A lost update that needs a choice, a timer and a switch at the right places. */
const racy =
  ({ tasks = 2, label = 'write', fixed = false }: Shape = {}): Build =>
  (world) => {
    let count = 0;
    for (let task = 0; task < tasks; task++) {
      world.task(`adder ${task}`, async () => {
        const amount = world.choose('amount', [0, 1, 2]);
        await sleep(10, new AbortController().signal, 'nap');
        const seen = count;
        await world.io(label);
        count = (fixed ? count : seen) + amount;
      });
    }
    return { final: () => assert.ok(count !== tasks, 'an update was lost') };
  };

test('replay takes the seed and repeats the failure step by step', async () => {
  const { failure } = await assertCaught(racy());
  const again = await replay(racy(), failure.seed);
  assert.deepEqual(again.failure?.trace, failure.trace);
  assert.equal(again.failure?.kind, failure.kind);
  assert.equal(again.failure?.seed, failure.seed);
  assert.equal(again.failure?.preemptions, failure.preemptions);
  assert.deepEqual([again.schedules, again.complete], [1, false]);
});

test('a seed found with any reduction replays without it', async () => {
  const counted: Build = (world) => {
    let count = 0;
    const seen: [number, number] = [0, 0];
    for (const task of [0, 1] as const) {
      world.task(`adder ${task}`, async () => {
        seen[task] = count;
        await world.io('write');
        count = seen[task] + 1;
      });
    }
    return { state: () => `${count} ${seen.join()}`, final: () => assert.equal(count, 2) };
  };
  for (const options of [{ hash: true }, { sleepSets: true }, { preemptions: 3 }, { hash: true, sleepSets: true }]) {
    const { failure } = await assertCaught(counted, options, 'final');
    assert.deepEqual((await replay(counted, failure.seed)).failure?.trace, failure.trace);
  }
});

test('a livelock replays to the same length', async () => {
  const endless: Build = (world) => {
    world.task('spinner', async () => {
      for (;;) {
        world.choose('colour', ['red', 'blue']);
        await world.io('turn');
      }
    });
    return {};
  };
  const { failure } = await assertCaught(endless, { steps_max: 30 }, 'livelock');
  assert.equal(failure.trace.filter((line) => line === 'spinner: turn').length, 29);
  assert.deepEqual((await replay(endless, failure.seed)).failure?.trace, failure.trace);
});

test('a seed of another model is refused', async () => {
  const { failure } = await assertCaught(racy());
  for (const other of [racy({ tasks: 1 }), racy({ tasks: 3 }), racy({ label: 'store' }), () => ({})]) {
    await assert.rejects(
      replay(other, failure.seed, { name: 'adders' }),
      /does not fit adders: .* changed .* Explore again/,
    );
  }
});

test('a seed whose bug is gone replays without a failure', async () => {
  const { failure } = await assertCaught(racy(), {}, 'final');
  const choices = [...decodeSeed(failure.seed).choices];
  const fixed: Build = (world) => ({ ...racy()(world), final: () => {} });
  assert.ok(choices.length > 0);
  assert.equal((await replay(fixed, failure.seed)).failure, undefined);
});

test('a seed is short: it lists only choices other than the natural one', () => {
  const choices = [0, 0, 0, 1, ...Array.from({ length: 500 }, () => 0), 12];
  const seed = encodeSeed('deadlock', 505, ['a: start', 'b: start'], choices);
  assert.match(seed, /^deadlock-505-[0-9a-z]+-3\.1_504\.12$/);
  assert.deepEqual(
    [...decodeSeed(seed).choices],
    [
      [3, 1],
      [504, 12],
    ],
  );
});

test('text that is not a seed is refused', async () => {
  for (const text of [
    '',
    'deadlock',
    'deadlock-3-abc',
    'deadlock-3-abc-1',
    'deadlock-3-abc-1.2_',
    "'deadlock-3-abc-1.2'",
  ]) {
    await assert.rejects(replay(racy(), text), /not a seed: .* looks like/, text);
  }
});

test('a failure is readable text, with the line that replays it', async () => {
  const { failure } = await explore(racy());
  assert.ok(failure !== undefined);
  const told = describeFailure(failure, { name: 'adders' }).split('\n');
  assert.equal(told[0], 'adders: final: an update was lost');
  assert.match(told[1] as string, /^after \d+ steps with \d+ preemptions?:$/);
  assert.match(told[2] as string, /^ +1\. adder 0: start$/);
  assert.match(told[3] as string, /^ +2\. adder 0: amount = \d$/);
  assert.equal(told.at(-2), `seed: ${failure.seed}`);
  assert.equal(told.at(-1), `replay with: await replay(build, '${failure.seed}')`);
});

test('assertHolds throws that text, and throws for a model that was not explored completely', async () => {
  await assert.rejects(assertHolds(racy(), { name: 'adders' }), (error: ModelError) => {
    assert.match(error.message, /^adders: final: an update was lost\n/);
    assert.equal(error.cause, error.result.failure?.error);
    return true;
  });
  const idle: Build = (world) => {
    for (const name of ['a', 'b']) world.task(name, async () => {});
    return {};
  };
  assert.equal((await assertHolds(idle)).schedules, 2);
  await assert.rejects(assertHolds(idle, { schedules_max: 1 }), /model: not complete, schedules_max was reached/);
  for (const [options, bounds] of BOUNDS) {
    await assert.rejects(
      assertHolds(idle, options),
      new RegExp(`not complete, bounded by ${bounds} \\(2 schedules\\)`),
    );
  }
});

const BOUNDS: readonly [Options, string][] = [
  [{ preemptions: 1 }, 'preemptions: 1'],
  [{ lags: 0 }, 'lags: 0'],
  [{ turn_max: 1 }, 'turn_max: 1'],
  [{ delayed: false }, 'delayed: false'],
  [{ lags: 0, turn_max: 1 }, 'lags: 0, turn_max: 1'],
];

test('assertHoldsWithin reports the bounds of a result, and refuses a result that has none', async () => {
  const build: Build = (world) => {
    for (const name of ['a', 'b']) world.task(name, async () => {});
    return {};
  };
  for (const [options, bounds] of BOUNDS) {
    const lines: string[] = [];
    const result = await assertHoldsWithin({ diagnostic: (line) => lines.push(line) }, build, options);
    assert.deepEqual([result.holds, result.complete, result.bounds.join(', ')], [true, false, bounds]);
    assert.deepEqual(lines, [`model: 2 schedules, bounded by ${bounds}`]);
  }
  const silent = { diagnostic: () => assert.fail('reported') };
  for (const options of [{}, { lags: 2 }, { steps_max: 500 }]) {
    await assert.rejects(assertHoldsWithin(silent, build, options), /model: complete, no option bounds it/);
  }
  await assert.rejects(assertHoldsWithin(silent, racy(), { lags: 0 }), /final: an update was lost/);
  await assert.rejects(assertHoldsWithin(silent, build, { lags: 0, schedules_max: 1 }), /schedules_max was reached/);
});

test('assertCaught throws when the mutant survives or fails in another way', async () => {
  await assertCaught(racy(), {}, 'final');
  await assertCaught(racy(), {}, /final: an update was lost/);
  await assert.rejects(
    assertCaught(racy(), { name: 'adders' }, 'deadlock'),
    /expected deadlock, but got adders: final: /,
  );
  await assert.rejects(assertCaught(racy(), {}, /two updates/), /expected \/two updates\/, but got model: final: /);
  const idle: Build = () => ({});
  await assert.rejects(assertCaught(idle, { name: 'idle' }), /idle: survived, no failure in all 1 schedules/);
});
