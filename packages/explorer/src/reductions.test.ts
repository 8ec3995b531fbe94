import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, sleep, touch } from '@ron/kernel/sched';
import fc from 'fast-check';
import { assertReductionsAgree, endings, explore, type Build, type World } from './index.ts';

/** A shared variable that announces itself, as kernel objects do. */
class Variable {
  #value = 0;
  get value(): number {
    touch(this);
    return this.#value;
  }
  set value(next: number) {
    touch(this);
    this.#value = next;
  }
}

/** A lock that hands itself over to the next in line. */
class Lock {
  #held = false;
  readonly #queue: (() => void)[] = [];
  async acquire(): Promise<void> {
    touch(this);
    if (!this.#held) {
      this.#held = true;
      return;
    }
    const parked = sched.park<void>('lock');
    this.#queue.push(parked.wake);
    await parked.promise;
  }
  release(): void {
    touch(this);
    const next = this.#queue.shift();
    if (next === undefined) this.#held = false;
    else next();
  }
  toString(): string {
    return `${this.#held}${this.#queue.length}`;
  }
}

const OPS = [
  'load',
  'store',
  'lock',
  'unlock',
  'sleep',
  'alarm',
  'clock',
  'stop',
  'look',
  'check',
  'spawn',
  'choose',
] as const;

/** One instruction of a small random program, on the first or the second of its objects. */
interface Instruction {
  readonly op: (typeof OPS)[number];
  readonly on: 0 | 1;
}

const instruction: fc.Arbitrary<Instruction> = fc.record({ op: fc.constantFrom(...OPS), on: fc.constantFrom(0, 1) });
const programs = fc.oneof(
  fc.array(fc.array(instruction, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 2 }),
  fc.array(fc.array(instruction, { minLength: 1, maxLength: 2 }), { minLength: 3, maxLength: 3 }),
);

/** A program as a model. Its state tells everything: variables, registers, locks, the signal. */
function modelOf(tasks: readonly (readonly Instruction[])[]): Build {
  return (world) => {
    const variables = [new Variable(), new Variable()] as const;
    const locks = [new Lock(), new Lock()] as const;
    const stop = new AbortController();
    const stopped = AbortSignal.any([stop.signal]);
    const registers = tasks.map(() => ({ value: 0, held: new Set<Lock>() }));
    tasks.forEach((instructions, index) => {
      const mine = registers[index] as (typeof registers)[number];
      const remember = (value: number): void => {
        mine.value = (mine.value * 3 + value) % 1000;
      };
      const execute: Record<Instruction['op'], (on: 0 | 1) => unknown> = {
        load: (on) => remember(variables[on].value + 1),
        store: (on) => (variables[on].value = mine.value + index + 1),
        lock: async (on) => {
          if (mine.held.has(locks[on])) return;
          await locks[on].acquire();
          mine.held.add(locks[on]);
        },
        unlock: (on) => mine.held.delete(locks[on]) && locks[on].release(),
        sleep: (on) => sleep(on + 1, new AbortController().signal),
        alarm: (on) => sched.timer(on + 1, () => void (variables[on].value += 7), 'alarm'),
        clock: () => remember(sched.now_ms()),
        stop: () => stop.abort(),
        look: () => remember(stop.signal.aborted ? 1 : 2),
        check: () => remember(stopped.aborted ? 1 : 2),
        spawn: (on) => sched.task('child', async () => void (variables[on].value += 5)),
        choose: () => remember(world.choose('value', [1, 2])),
      };
      world.task(`task ${index}`, async () => {
        for (const { op, on } of instructions) {
          // Announced, though nobody else looks at it: so no step counts as touching everything.
          touch(mine);
          await execute[op](on);
          touch(mine);
          await world.io('next');
        }
        touch(mine);
      });
    });
    return {
      state: () => {
        const values = [...variables, ...registers].map(({ value }) => value);
        return [values, locks.join(), stop.signal.aborted].join(';');
      },
    };
  };
}

test('reductions find every ending of random programs', async () => {
  let programs_run = 0;
  await fc.assert(
    fc.asyncProperty(programs, async (tasks) => {
      const model = modelOf(tasks);
      const isSmall = await endings(model, { schedules_max: 1000 }).then(
        () => true,
        () => false,
      );
      fc.pre(isSmall);
      await assertReductionsAgree(model);
      programs_run++;
    }),
    { numRuns: Number(process.env['EXPLORER_PROGRAMS'] ?? 20) },
  );
  assert.ok(programs_run > 0);
});

/** Tasks that each work on a variable of their own. */
const independent =
  (tasks: number, steps: number): Build =>
  (world) => {
    const variables = Array.from({ length: tasks }, () => new Variable());
    // Announced before the tasks part, so that each knows the others' by name.
    for (const variable of variables) touch(variable);
    variables.forEach((variable, index) => {
      world.task(`task ${index}`, async () => {
        for (let step = 0; step < steps; step++) {
          variable.value++;
          await world.io('next');
        }
        variable.value++;
      });
    });
    return { state: () => variables.map(({ value }) => value).join() };
  };

test('sleep sets run a single schedule when tasks share nothing', async () => {
  const [plain, reduced] = [await explore(independent(3, 2)), await explore(independent(3, 2), { sleepSets: true })];
  assert.deepEqual([plain.schedules, plain.complete], [1680, true]);
  assert.deepEqual([reduced.schedules, reduced.complete], [1, true]);
  assert.ok(reduced.steps * 20 < plain.steps);
});

test('hash visits each state once', async () => {
  const result = await explore(independent(3, 2), { hash: true });
  // Four positions for each of three tasks; every state but the last is left by as many steps as tasks are not done.
  const states = 4 ** 3;
  assert.equal(result.complete, true);
  assert.ok(result.schedules + result.pruned <= states * 3);
});

test('what a step announces nothing of, it may have done anything to', async () => {
  const found = await endings(
    (world) => {
      let text = '';
      for (const name of ['a', 'b', 'c']) {
        world.task(name, async () => {
          text += name;
        });
      }
      return { state: () => text };
    },
    { sleepSets: true },
  );
  assert.equal(found.size, 6);
});

/** Each task announces only an object of its own: what they share is for the explorer to notice. */
const SHARED: Record<string, (world: World, log: (line: string) => void) => void> = {
  'an object that was never touched before': (world, log) => {
    const shared = {};
    for (const name of ['a', 'b']) taskOfItsOwn(world, name, async () => (touch(shared), log(name)));
  },
  'a wait that either may end': (world, log) => {
    const parked = sched.park<string>('winner');
    for (const name of ['a', 'b']) taskOfItsOwn(world, name, async () => parked.wake(name));
    taskOfItsOwn(world, 'waiter', async () => log(await parked.promise));
  },
  'the clock, read by one and moved by the other': (world, log) => {
    const fired = {};
    touch(fired);
    sched.timer(10, () => touch(fired), 'alarm');
    taskOfItsOwn(world, 'reader', async () => log(String(sched.now_ms())));
  },
  'a timer that one cancels': (world, log) => {
    const fired = {};
    touch(fired);
    const timer = sched.timer(10, () => (touch(fired), log('fired')), 'alarm');
    taskOfItsOwn(world, 'canceller', async () => (timer.cancel(), log('cancelled')));
  },
  'a signal that one aborts and the other looks at': (world, log) => {
    const stop = new AbortController();
    taskOfItsOwn(world, 'stopper', async () => stop.abort());
    taskOfItsOwn(world, 'looker', async () => log(String(stop.signal.aborted)));
  },
  'a signal that is made from the one that is aborted': (world, log) => {
    const stop = new AbortController();
    const either = AbortSignal.any([stop.signal, new AbortController().signal]);
    taskOfItsOwn(world, 'looker', async () => log(String(either.aborted)));
    taskOfItsOwn(world, 'stopper', async () => stop.abort());
  },
  'who is first in a race of tasks': (_world, log) => {
    const tasks = ['a', 'b'].map((name) => {
      const own = {};
      touch(own);
      return sched.task(name, async () => (touch(own), name));
    });
    void Promise.race(tasks).then(log);
  },
  'bytes drawn from one generator': (world, log) => {
    for (const name of ['a', 'b']) taskOfItsOwn(world, name, async () => log(name + sched.randomBytes(1).join()));
  },
};

function taskOfItsOwn(world: World, name: string, run: () => Promise<unknown>): void {
  const own = {};
  touch(own);
  world.task(name, async () => {
    touch(own);
    await run();
    touch(own);
  });
}

for (const [what, script] of Object.entries(SHARED)) {
  test(`sleep sets notice that two steps share ${what}`, async () => {
    const build: Build = (world) => {
      const lines: string[] = [];
      script(world, (line) => void lines.push(line));
      return { state: () => lines.join(' ') };
    };
    const all = await endings(build);
    assert.ok(all.size > 1, 'the order makes no difference: the test shows nothing');
    assert.deepEqual(await endings(build, { sleepSets: true }), all);
  });
}

test('two who only read the clock and a signal do not disturb each other', async () => {
  const build: Build = (world) => {
    const { signal } = new AbortController();
    for (const name of ['a', 'b']) taskOfItsOwn(world, name, async () => sched.now_ms() + Number(signal.aborted));
    return {};
  };
  assert.equal((await explore(build, { sleepSets: true })).schedules, 1);
});

test('hash and a preemption bound together miss nothing within the bound', async () => {
  const racy = (world: World): ReturnType<Build> => {
    let count = 0;
    const seen = [0, 0, 0] as [number, number, number];
    for (const index of [0, 1, 2] as const) {
      world.task(`adder ${index}`, async () => {
        seen[index] = count;
        await world.io('write');
        count = seen[index] + 1;
      });
    }
    return { state: () => `${count};${seen.join()}` };
  };
  for (const preemptions of [0, 1, 2, 3]) {
    assert.deepEqual(await endings(racy, { preemptions, hash: true }), await endings(racy, { preemptions }));
  }
});

test('a state that leaves out what a task remembers is found out', async () => {
  const forgetful: Build = (world) => {
    const ended = sched.park<void>('the end of writer');
    let count = 0;
    let result = -1;
    world.task('reader', async () => {
      const seen = count;
      await ended.promise;
      result = seen;
    });
    world.task('writer', async () => {
      count = 1;
      await world.io('undo');
      count = 0;
      ended.wake();
    });
    return { state: () => `${count} ${result}` };
  };
  const options = { name: 'forgetful' };
  await assert.rejects(assertReductionsAgree(forgetful, options), /forgetful: hash lost 1 of 2 endings: state 0 1/);
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
