import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, sleep } from '@ron/kernel/sched';
import fc from 'fast-check';
import { endings, explore, type Build, type Options, type World } from './index.ts';

const never = new AbortController().signal;

/** Tasks that share nothing, with as many steps each as `lengths` says. */
function independent(lengths: readonly number[]): Build {
  return (world) => {
    lengths.forEach((length, index) => {
      world.task(`task ${index}`, async () => {
        for (let step = 1; step < length; step++) await world.io(`step ${step}`);
      });
    });
    return {};
  };
}

/** In how many orders sequences of these lengths can be merged. */
function merges(lengths: readonly number[]): number {
  let [ways, total] = [1, 0];
  for (const length of lengths) {
    for (let chosen = 1; chosen <= length; chosen++) ways = (ways * ++total) / chosen;
  }
  return Math.round(ways);
}

/** Records events in order and returns them at the end. */
function logged(script: (world: World, log: (line: string) => void) => void): Build {
  return (world) => {
    const lines: string[] = [];
    script(world, (line) => void lines.push(line));
    return { state: () => lines.join(' ') };
  };
}

async function endingsOf(script: Parameters<typeof logged>[0], options: Options = {}): Promise<string[]> {
  const found = await endings(logged(script), options);
  return [...found].map((ending) => ending.replace('state ', '')).toSorted();
}

test('runs each order of independent steps exactly once', async () => {
  for (const lengths of [[], [1], [5], [1, 1], [2, 3], [8, 8], [3, 3, 3], [1, 2, 3, 2], [2, 2, 2, 2]]) {
    const result = await explore(independent(lengths));
    assert.equal(result.schedules, merges(lengths), `lengths ${lengths.join()}`);
    assert.equal(result.complete, true);
    assert.equal(
      result.depth_max,
      lengths.reduce((sum, length) => sum + length, 0),
    );
  }
});

test('finds exactly the outcomes that a list of all merges finds', async () => {
  const program = fc.array(fc.array(fc.constantFrom(2, 3, 5), { maxLength: 3 }), { minLength: 1, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(program, async (tasks) => {
      const found = await endings((world) => {
        let value = 0;
        tasks.forEach((factors, index) => {
          world.task(`task ${index}`, async () => {
            for (const factor of factors) {
              await world.io('turn');
              value = (value * factor + index + 1) % 1009;
            }
          });
        });
        return { state: () => String(value) };
      });
      const expected = new Set<string>();
      const merge = (value: number, done: readonly number[]): void => {
        let isOver = true;
        tasks.forEach((factors, index) => {
          const factor = factors[done[index] as number];
          if (factor === undefined) return;
          isOver = false;
          merge((value * factor + index + 1) % 1009, done.with(index, (done[index] as number) + 1));
        });
        if (isOver) expected.add(`state ${value}`);
      };
      merge(
        0,
        tasks.map(() => 0),
      );
      assert.deepEqual(found, expected);
    }),
    { numRuns: 40 },
  );
});

test('explores every value of every choice, even while the model is built', async () => {
  const found = await endingsOf((world, log) => {
    const size = world.choose('size', [1, 2]);
    world.task('task', async () => {
      for (let round = 0; round < size; round++) log(world.choose('letter', ['a', 'b', 'c']));
    });
  });
  const letters = ['a', 'b', 'c'];
  assert.deepEqual(found, [...letters, ...letters.flatMap((a) => letters.map((b) => `${a} ${b}`))].toSorted());
});

test('a choice among nothing is refused', async () => {
  const result = await explore((world) => {
    world.task('task', async () => void world.choose('nothing', []));
    return {};
  });
  assert.match(String(result.failure?.error), /choose\('nothing'\) needs at least one value/);
});

test('timers fire in order of time; those due at the same instant in any order; a lag makes them late', async () => {
  const script: Parameters<typeof logged>[0] = (world, log) => {
    world.task('task', async () => {
      sched.timer(20, () => log(`late@${world.now_ms()}`), 'late');
      sched.timer(10, () => log(`a@${world.now_ms()}`), 'a');
      sched.timer(10, () => log(`b@${world.now_ms()}`), 'b');
      sched.timer(5, () => log('cancelled'), 'cancelled').cancel();
    });
  };
  const found = await endingsOf(script, { lags: 0 });
  assert.deepEqual(found, ['a@10 b@10 late@20', 'b@10 a@10 late@20']);
  const late = await endingsOf(script);
  assert.ok(late.includes('a@20 b@20 late@20'), 'the clock passes 10 and 20 before any timer fires');
  assert.deepEqual(
    late.filter((ending) => ending.startsWith('late') && !ending.endsWith('@20')),
    [],
    'a timer that is due earlier fires first',
  );
});

test('a timer may fire before a step that is ready', async () => {
  const found = await endingsOf((world, log) => {
    world.task('slow', async () => {
      await world.io('read');
      log(`read@${world.now_ms()}`);
    });
    sched.timer(10, () => log('timeout'), 'timeout');
  });
  assert.deepEqual(found, ['read@0 timeout', 'timeout read@10']);
});

test('a woken waiter may be overtaken, and is woken once', async () => {
  const found = await endingsOf((world, log) => {
    const waits = ['a', 'b'].map((name) => ({ name, parked: sched.park<string>(name) }));
    for (const { name, parked } of waits) {
      world.task(name, async () => log(name + (await parked.promise)));
    }
    world.task('waker', async () => {
      for (const { parked } of waits) {
        parked.wake('1');
        parked.wake('2');
        parked.fail(new Error('too late'));
      }
    });
  });
  assert.deepEqual(found, ['a1 b1', 'b1 a1']);
});

test('a pause lets ready steps go first, but not later ones', async () => {
  const found = await endingsOf((world, log) => {
    const first = sched.park<void>('first');
    world.task('waiter', async () => {
      await first.promise;
      log('woken');
      await sched.task('later', async () => log('later'));
    });
    world.task('pauser', async () => {
      first.wake();
      await sched.pause('pause');
      log('paused');
    });
  });
  assert.deepEqual(found, ['woken later paused', 'woken paused later']);
});

test('a loop that pauses until another task is done ends under every schedule', async () => {
  const result = await explore((world) => {
    const jobs = ['job'];
    world.task('poller', async () => {
      while (jobs.length > 0) await sched.pause('poll');
    });
    world.task('worker', async () => void jobs.pop());
    return {};
  });
  assert.equal(result.complete, true);
});

test('a task that code starts begins at once or at a step of its own, and its outcome reaches its caller', async () => {
  const found = await endingsOf((world, log) => {
    world.task('parent', async () => {
      const children = ['x', 'y'].map((name) =>
        sched.task(name, async () => {
          log(name);
          return name.toUpperCase();
        }),
      );
      log('spawned');
      log((await Promise.all(children)).join(''));
    });
  });
  assert.deepEqual(found, ['spawned x y XY', 'spawned y x XY', 'x y spawned XY']);
});

test('a rejection of a task that code starts is left to the code that awaits it', async () => {
  const found = await endingsOf((world, log) => {
    world.task('parent', async () => {
      await sched.task('child', () => Promise.reject(new Error('crash'))).catch((error: Error) => log(error.message));
    });
  });
  assert.deepEqual(found, ['crash']);
});

test('a continuation belongs to its own task, even when another task settles the promise', async () => {
  const result = await explore((world) => {
    const shared = Promise.withResolvers<void>();
    world.task('waiter', async () => {
      await shared.promise;
      await sched.park('forever').promise;
    });
    world.task('resolver', async () => shared.resolve());
    return {};
  });
  assert.equal(result.failure?.kind, 'deadlock');
  assert.match(String(result.failure.error), /blocked: waiter at forever$/);
});

test('without lags the clocks move with the timers only; random values are low, middle or high; bytes count up', async () => {
  const script: Parameters<typeof logged>[0] = (world, log) => {
    world.task('task', async () => {
      const start_ms = sched.now_ms();
      const wall_ms = sched.wall_ms();
      await sleep(1500, never);
      log(`${sched.now_ms() - start_ms} ${sched.wall_ms() - wall_ms} ${Math.round(sched.random() * 10)}`);
      log(`${sched.randomBytes(2).join('.')} ${sched.randomBytes(2).join('.')}`);
    });
  };
  const found = await endingsOf(script, { lags: 0 });
  assert.deepEqual(found, ['1500 1500 0 0.1 0.2', '1500 1500 10 0.1 0.2', '1500 1500 5 0.1 0.2']);
  const late = await endingsOf(script);
  assert.ok(late.includes('3601500 1500 5 0.1 0.2'), 'time passes between two readings of the clock');
  const later = await endingsOf(script, { lags: 2 });
  assert.deepEqual(
    late.filter((ending) => !later.includes(ending)),
    [],
  );
});

test('Node empties the list of one delay before it turns to the next', async () => {
  const found = await endingsOf((world, log) => {
    world.task('task', async () => {
      sched.timer(10, () => log('a'), 'a');
      await sleep(5, never);
      sched.timer(10, () => log('c'), 'c');
    });
    world.task('other', async () => void sched.timer(12, () => log('b'), 'b'));
  });
  assert.ok(found.includes('a b c'), 'by due time: 10, 12, 15');
  assert.ok(found.includes('a c b'), 'all are late: both of the list of 10 ms come first');
  assert.ok(!found.some((ending) => ending.startsWith('b c')), 'in a list, the older comes first');
});

test('a daemon, or a task that code starts, may be left blocked', async () => {
  const result = await explore((world) => {
    world.task('daemon', () => sched.park<void>('forever').promise, { daemon: true });
    world.task('parent', async () => void sched.task('child', () => sched.park('forever').promise));
    return {};
  });
  assert.equal(result.complete, true);
});

test('stops, incomplete, at schedules_max; a preemption bound is never complete', async () => {
  const capped = await explore(independent([3, 3]), { schedules_max: 7 });
  assert.deepEqual([capped.schedules, capped.complete], [7, false]);
  const bounded = await explore(independent([2, 2]), { preemptions: 100 });
  assert.deepEqual([bounded.schedules, bounded.complete], [6, false]);
});

test('a preemption bound keeps exactly the schedules with no more preemptions', async () => {
  // Two tasks of two steps. Without a preemption one runs to its end, then the other.
  for (const [preemptions, schedules] of [
    [0, 2],
    [1, 4],
    [2, 6],
  ] as const) {
    assert.equal((await explore(independent([2, 2]), { preemptions })).schedules, schedules, `bound ${preemptions}`);
  }
});
