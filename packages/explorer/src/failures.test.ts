import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, sleep } from '@ron/kernel/sched';
import { assertCaught, assertHolds, explore, type Build, type Failure, type World } from './index.ts';

async function failureOf(build: Build, options = {}): Promise<Failure> {
  return (await assertCaught(build, options)).failure;
}

/** A flag with a waiter. The lazy waiter checks first and registers in a later step. */
function gate(world: World, lazy: boolean): ReturnType<Build> {
  let isOpen = false;
  let wake = (): void => {};
  world.task('waiter', async () => {
    if (isOpen) return;
    if (lazy) await world.io('go to register');
    const parked = sched.park<void>('gate');
    wake = parked.wake;
    await parked.promise;
  });
  world.task('opener', async () => {
    isOpen = true;
    wake();
  });
  return {};
}

/** Tasks that add one each, with a turn between reading and writing. */
const counter =
  (tasks: number): Build =>
  (world) => {
    let count = 0;
    for (let task = 0; task < tasks; task++) {
      world.task(`adder ${task}`, async () => {
        const seen = count;
        await world.io('write');
        count = seen + 1;
      });
    }
    return { final: () => assert.equal(count, tasks, 'an update was lost') };
  };

test('a lost wakeup is a deadlock, and the message says who waits where', async () => {
  await assertHolds((world) => gate(world, false));
  const failure = await failureOf((world) => gate(world, true));
  assert.equal(failure.kind, 'deadlock');
  assert.match(String(failure.error), /blocked: waiter at gate$/);
  assert.deepEqual(failure.trace, ['waiter: start', 'opener: start', 'waiter: go to register']);
  assert.equal(failure.preemptions, 1);
});

test('a lost update breaks final', async () => {
  await assertHolds(counter(1));
  const failure = await failureOf(counter(3));
  assert.equal(failure.kind, 'final');
  assert.match(String(failure.error), /an update was lost/);
  assert.equal(failure.preemptions, 1);
  assert.equal(failure.minimal, true);
});

test('room that was seen and then waited for breaks the capacity, an invariant', async () => {
  const failure = await failureOf((world) => {
    let inside = 0;
    for (const name of ['a', 'b']) {
      world.task(name, async () => {
        if (inside >= 1) return;
        await world.io('enter');
        inside++;
        await world.io('leave');
        inside--;
      });
    }
    return { invariant: () => assert.ok(inside <= 1, 'two are inside') };
  });
  assert.equal(failure.kind, 'invariant');
  assert.equal(failure.preemptions, 2);
  assert.deepEqual(failure.trace.toSorted(), ['a: enter', 'a: start', 'b: enter', 'b: start']);
});

test('an invariant that does not hold at the start fails before any step', async () => {
  const failure = await failureOf((world) => {
    world.task('task', async () => {});
    return { invariant: () => assert.fail('never held') };
  });
  assert.deepEqual([failure.kind, failure.trace], ['invariant', []]);
});

test('two tasks that keep making way for each other are a livelock', async () => {
  const failure = await failureOf(
    (world) => {
      const wants = [false, false];
      for (const me of [0, 1]) {
        world.task(`polite ${me}`, async () => {
          wants[me] = true;
          await world.io('look');
          while (wants[1 - me] === true) {
            wants[me] = false;
            await world.io('make way');
            wants[me] = true;
            await world.io('look');
          }
          wants[me] = false;
        });
      }
      return {};
    },
    { steps_max: 40 },
  );
  assert.equal(failure.kind, 'livelock');
  assert.equal(failure.trace.length, 40);
  assert.match(String(failure.error), /not over after 40 steps; blocked: polite 0 at .*, polite 1 at /);
});

test('a timer that was forgotten leaves its task in a deadlock', async () => {
  const withTimeout =
    (isForgotten: boolean): Build =>
    (world) => {
      world.task('caller', async () => {
        const answer = sched.park<string>('answer');
        if (!isForgotten) sched.timer(100, () => answer.wake('timeout'), 'timeout');
        await answer.promise;
      });
      return {};
    };
  await assertHolds(withTimeout(false));
  assert.match(String((await failureOf(withTimeout(true))).error), /blocked: caller at answer/);
});

test('a timer that was not cancelled fires after all tasks have ended', async () => {
  const failure = await failureOf((world) => {
    let isClosed = false;
    world.task('caller', async () => {
      sched.timer(100, () => assert.ok(!isClosed, 'fired after close'), 'timeout');
      isClosed = true;
    });
    return {};
  });
  assert.equal(failure.kind, 'task');
  assert.deepEqual(failure.trace, ['caller: start', 'caller: timeout (timer, at 100 ms)']);
});

test('a task that rejects, or throws at once, fails its schedule', async () => {
  for (const run of [() => Promise.reject(new Error('broken')), () => assert.fail('broken')]) {
    const failure = await failureOf((world) => {
      world.task('task', run);
      return {};
    });
    assert.equal(failure.kind, 'task');
    assert.equal((failure.error as Error).message, 'broken');
  }
});

test('a wait that fails fails its task', async () => {
  const failure = await failureOf((world) => {
    const stop = new AbortController();
    world.task('sleeper', () => sleep(10, stop.signal, 'nap'));
    world.task('stopper', async () => stop.abort(new Error('stopped')));
    return {};
  });
  assert.equal((failure.error as Error).message, 'stopped');
  assert.deepEqual(failure.trace, ['sleeper: start', 'stopper: start']);
});

test('an unhandled rejection fails its schedule, not the process', async () => {
  const failure = await failureOf((world) => {
    let isWatched = false;
    world.task('worker', async () => {
      await world.io('work');
      const crash = sched.task('child', () => Promise.reject(new Error('crash')));
      if (isWatched) await crash.catch(() => {});
    });
    world.task('watcher', async () => {
      isWatched = true;
    });
    return {};
  });
  assert.equal(failure.kind, 'task');
  assert.match(String(failure.error), /unhandled rejection: crash/);
  assert.equal(failure.preemptions, 0);
  assert.ok(failure.trace.indexOf('worker: work') < failure.trace.indexOf('watcher: start'));
});

test('an abort listener that throws fails its schedule, not the process', async () => {
  const failure = await failureOf((world) => {
    const stop = new AbortController();
    let isSafe = false;
    stop.signal.addEventListener('abort', () => {
      if (!isSafe) throw new Error('listener');
    });
    world.task('stopper', async () => {
      await world.io('work');
      stop.abort();
    });
    world.task('guard', async () => {
      isSafe = true;
    });
    return {};
  });
  assert.equal(failure.kind, 'task');
  assert.match(String(failure.error), /uncaught exception: listener/);
  assert.ok(failure.trace.indexOf('stopper: work') < failure.trace.indexOf('guard: start'));
});

test('a wait that fails before it is awaited is handled in time, even if the schedule is cut', async () => {
  const build: Build = (world) => {
    const parked = sched.park<string>('answer');
    let answer = '';
    world.task('failer', async () => parked.fail(new Error('refused')));
    world.task('waiter', async () => {
      await world.io('slow');
      answer = await parked.promise.catch((error: Error) => error.message);
    });
    world.task('other', () => world.io('turn'));
    return { state: () => answer, final: () => assert.equal(answer, 'refused') };
  };
  for (const options of [{}, { hash: true }, { sleepSets: true }]) await assertHolds(build, options);
});

test('a wait that fails and is never awaited fails its schedule', async () => {
  const failure = await failureOf((world) => {
    const parked = sched.park<void>('answer');
    world.task('failer', async () => parked.fail(new Error('refused')));
    return {};
  });
  assert.match(String(failure.error), /unhandled rejection: refused/);
  assert.deepEqual(failure.trace, ['failer: start']);
});

test('a model that differs from one run to the next is nondeterministic', async () => {
  let runs = 0;
  const models: Record<string, Build> = {
    'another number of tasks': (world) => {
      const tasks = runs++ % 2 === 0 ? ['a', 'b'] : ['a', 'b', 'c'];
      for (const name of tasks) world.task(name, async () => {});
      return {};
    },
    'another label': (world) => {
      for (const name of ['a', 'b']) world.task(name, () => world.io(`read ${runs++}`));
      return {};
    },
    'a shorter task': (world) => {
      const turns = runs++ === 0 ? 2 : 0;
      for (const name of ['a', 'b']) {
        world.task(name, async () => {
          for (let turn = 0; turn < turns; turn++) await world.io('turn');
        });
      }
      return {};
    },
    'another delay': (world) => {
      const delay_ms = runs++ === 0 ? 10 : 20;
      world.task('a', async () => void sched.timer(delay_ms, () => {}, 'alarm'));
      world.task('b', async () => {});
      return {};
    },
    'a task that is over before its choice': (world) => {
      const isShort = runs++ > 0;
      world.task('a', async () => {
        if (isShort) return;
        await world.io('turn');
        world.choose('choice', [1, 2]);
      });
      return {};
    },
    'another choice': (world) => {
      world.task('a', async () => void world.choose(`choice ${runs++}`, [1, 2]));
      return {};
    },
    'a failure that does not come again': (world) => {
      world.task('a', async () => assert.ok(runs++ > 0));
      return {};
    },
    'a failure kept from an earlier schedule': (world) => {
      for (const name of ['a', 'b']) world.task(name, async () => {});
      return { final: () => assert.notEqual(runs++, 1) };
    },
  };
  for (const [name, build] of Object.entries(models)) {
    runs = 0;
    assert.equal((await failureOf(build)).kind, 'nondeterminism', name);
  }
});

test('a real timer inside a model is refused with advice', async () => {
  const timers = {
    setTimeout: () => setTimeout(() => {}, 1),
    setInterval: () => setInterval(() => {}, 1),
    setImmediate: () => setImmediate(() => {}),
    timeout: () => AbortSignal.timeout(1),
  };
  for (const [name, start] of Object.entries(timers)) {
    const failure = await failureOf((world) => {
      world.task('task', async () => void start());
      return {};
    });
    assert.match(String(failure.error), new RegExp(`${name} does not work inside a model: use sched\\.timer`));
  }
});

test('a failure is shown with the fewest preemptions, not the first one found', async () => {
  const failure = await failureOf((world) => {
    let isClosed = false;
    world.task('user', async () => {
      await world.io('use');
      assert.ok(!isClosed, 'used after close');
    });
    world.task('closer', async () => {
      isClosed = true;
    });
    return {};
  });
  // The search comes first upon a close between the two steps of the user.
  assert.deepEqual([failure.preemptions, failure.trace[0]], [0, 'closer: start']);
});

test('the number of preemptions that a failure needs is found', async () => {
  // Each of n stages needs one switch there and back; only all of them together break it.
  const staged =
    (stages: number): Build =>
    (world) => {
      let [left, right] = [0, 0];
      let isBroken = true;
      world.task('left', async () => {
        for (let stage = 0; stage < stages; stage++) {
          await world.io(`stage ${stage}`);
          if (right !== left++) isBroken = false;
        }
      });
      world.task('right', async () => {
        for (let stage = 0; stage < stages; stage++) {
          await world.io(`stage ${stage}`);
          if (left !== ++right) isBroken = false;
        }
      });
      return { final: () => assert.ok(!isBroken) };
    };
  for (const [stages, preemptions] of [
    [1, 0],
    [2, 2],
    [3, 4],
  ] as const) {
    const { failure } = await explore(staged(stages));
    assert.deepEqual([failure?.preemptions, failure?.minimal], [preemptions, true], `${stages} stages`);
  }
});
