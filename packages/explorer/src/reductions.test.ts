import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, sleep, touch } from '@ron/kernel/sched';
import fc from 'fast-check';
import { assertReductionsAgree, endings, explore, type Build, type World } from './index.ts';
import { independent, Variable } from '../test/shared-variable.ts';

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

/** Two tasks with up to three instructions each, or three with up to two. */
const programs = (...ops: Instruction['op'][]): fc.Arbitrary<Instruction[][]> => {
  const instruction = fc.record({ op: fc.constantFrom(...ops), on: fc.constantFrom<0 | 1>(0, 1) });
  const tasks = (count: number, length: number): fc.Arbitrary<Instruction[][]> =>
    fc.array(fc.array(instruction, { minLength: 1, maxLength: length }), { minLength: count, maxLength: count });
  return fc.oneof(tasks(2, 3), tasks(3, 2));
};

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
          // Announced, though no other task reads it: so no step counts as touching everything.
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

const PROGRAMS_COUNT = Number(process.env['EXPLORER_PROGRAMS'] ?? 12);

/** Checks `holds` for random programs that have few enough schedules. */
async function forPrograms(
  all: fc.Arbitrary<Instruction[][]>,
  holds: (model: Build) => Promise<unknown>,
): Promise<void> {
  const property = fc.asyncProperty(all, async (tasks) => {
    const model = modelOf(tasks);
    const isSmall = await endings(model, { schedules_max: 500 }).then(
      () => true,
      () => false,
    );
    fc.pre(isSmall);
    await holds(model);
  });
  await fc.assert(property, { numRuns: PROGRAMS_COUNT });
}

test('reductions find every ending of random programs', async () => {
  await forPrograms(programs(...OPS), (model) => assertReductionsAgree(model));
});

test('reductions find every ending of programs whose steps often commute', async () => {
  await forPrograms(programs('load', 'store'), (model) => assertReductionsAgree(model));
});

test('hash finds every ending within a preemption bound', async () => {
  await forPrograms(programs('load', 'store', 'alarm'), async (model) => {
    for (const preemptions of [0, 1, 2]) {
      assert.deepEqual(await endings(model, { preemptions, hash: true }), await endings(model, { preemptions }));
    }
  });
});

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

test('a step that announces no access may depend on every other step', async () => {
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

/** Scripts whose ending depends on the order of steps, though the tasks announce nothing in common. */
const SHARED: Record<string, (world: World, log: (line: string) => void) => void> = {
  'an object that was never touched before': (world, log) => {
    const shared = {};
    for (const name of ['a', 'b']) solo(world, name, async () => (touch(shared), log(name)));
  },
  'an object that only one outcome of a choice touches': (world, log) => {
    const shared = {};
    touch(shared);
    solo(world, 'a', async () => {
      if (!world.choose('touch', [false, true])) return;
      touch(shared);
      log('a');
    });
    solo(world, 'b', async () => (touch(shared), log('b')));
  },
  'a wait that either may end': (world, log) => {
    const owners = ['a', 'b'].map((name) => ({ name, own: known() }));
    solo(world, 'waiter', async () => {
      const parked = sched.park<string>('winner');
      for (const { name, own } of owners) world.task(name, async () => (touch(own), parked.wake(name)));
      log(await parked.promise);
    });
  },
  'the variables of one task that waits for two things': (world, log) => {
    const owners = ['a', 'b'].map((name) => ({ name, own: known() }));
    solo(world, 'waiter', () =>
      Promise.all(owners.map(({ name, own }) => world.io(name).then(() => (touch(own), log(name))))),
    );
  },
  'the clock, read by one and moved by the other': (world, log) => {
    const own = known();
    sched.timer(10, () => touch(own), 'alarm');
    solo(world, 'reader', async () => log(String(sched.now_ms())));
  },
  'a timer that one cancels': (world, log) => {
    const own = known();
    const timer = sched.timer(10, () => (touch(own), log('fired')), 'alarm');
    solo(world, 'canceller', async () => (timer.cancel(), log('cancelled')));
  },
  'a signal that one aborts and the other looks at': (world, log) => {
    const stop = new AbortController();
    void stop.signal.aborted;
    solo(world, 'stopper', async () => stop.abort());
    solo(world, 'looker', async () => log(String(stop.signal.aborted)));
  },
  'a signal that is made from the one that is aborted': (world, log) => {
    const stop = new AbortController();
    const either = AbortSignal.any([stop.signal, new AbortController().signal]);
    void either.aborted;
    solo(world, 'looker', async () => log(String(either.aborted)));
    solo(world, 'stopper', async () => stop.abort());
  },
  'who is first in a race of tasks': (_world, log) => {
    const tasks = ['a', 'b'].map((name) => {
      const own = known();
      return sched.task(name, async () => (touch(own), name));
    });
    void Promise.race(tasks).then(log);
  },
  'bytes drawn from one generator': (world, log) => {
    for (const name of ['a', 'b']) solo(world, name, async () => log(name + sched.randomBytes(1).join()));
  },
  'the order in which they paused': (world, log) => {
    for (const name of ['a', 'b']) {
      solo(world, name, async () => {
        await sched.pause('pause');
        log(name);
      });
    }
  },
};

/** Scripts in which something is remembered that the model's state, its log, does not tell. */
const REMEMBERED: typeof SHARED = {
  'the value of a choice': (world, log) => {
    solo(world, 'a', async () => {
      const chosen = world.choose('value', ['x', 'y']);
      await world.io('later');
      log(chosen);
    });
  },
  'the future result of a wait': (world, log) => {
    const tries = new Variable();
    solo(world, 'waiter', async () => {
      const parked = sched.park<string>('winner');
      for (const name of ['a', 'b']) world.task(name, async () => (tries.value++, parked.wake(name)));
      log((await parked.promise) + tries.value);
    });
  },
  'the result of a wait': (world, log) => {
    const parked = sched.park<string>('winner');
    for (const name of ['a', 'b']) solo(world, name, async () => parked.wake(name));
    solo(world, 'waiter', async () => {
      const winner = await parked.promise;
      await world.io('later');
      log(winner);
    });
  },
  'the error of a wait': (world, log) => {
    const parked = sched.park<string>('winner');
    for (const name of ['a', 'b']) solo(world, name, async () => parked.fail(new Error(name)));
    solo(world, 'waiter', async () => {
      const error = await parked.promise.catch((reason: Error) => reason.message);
      await world.io('later');
      log(error);
    });
  },
  'how late it is': (world, log) => {
    sched.timer(10, () => {}, 'first');
    solo(world, 'setter', async () => {
      const second = sched.park<void>('second');
      sched.timer(10, second.wake, 'second');
      await second.promise;
      await world.io('later');
      log(String(sched.now_ms()));
    });
  },
  'how many bytes were drawn': (world, log) => {
    const steps = new Variable();
    solo(world, 'a', async () => (steps.value++ === 0 ? sched.randomBytes(1) : undefined));
    solo(world, 'b', async () => steps.value++);
    solo(world, 'c', async () => log(`${steps.value} ${sched.randomBytes(1).join()}`));
  },
};

/** An object that every branch knows by name. */
function known(): object {
  const object = {};
  touch(object);
  return object;
}

/** A task that announces only an object of its own. */
function solo(world: World, name: string, run: () => Promise<unknown>): void {
  const own = known();
  world.task(name, async () => {
    touch(own);
    await run();
    touch(own);
  });
}

for (const [what, script] of [...Object.entries(SHARED), ...Object.entries(REMEMBERED)]) {
  test(`reductions notice that the order decides ${what}`, async () => {
    const found = await assertReductionsAgree((world) => {
      const lines: string[] = [];
      script(world, (line) => void lines.push(line));
      return { state: () => lines.join(' ') };
    });
    assert.ok(found.size > 1, 'there is one ending only: the test shows nothing');
  });
}

test('two tasks that only read the clock and a signal do not disturb each other, unless time passes', async () => {
  const build: Build = (world) => {
    const { signal } = new AbortController();
    for (const name of ['a', 'b']) solo(world, name, async () => sched.now_ms() + Number(signal.aborted));
    return {};
  };
  assert.equal((await explore(build, { sleepSets: true, lags: 0 })).schedules, 1);
  assert.ok((await explore(build, { sleepSets: true })).schedules > 1);
});

/** Tasks that each take several waves of microtasks, on a variable of their own or on a shared one. */
