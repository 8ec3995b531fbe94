/** Bugs that earlier versions of the explorer did not find. Each real bug stands beside its repair, which must hold. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Mpsc } from '@ron/kernel';
import { sched, sleep, type Timer } from '@ron/kernel/sched';
import { assertCaught, assertHolds, explore, type Build } from './index.ts';

const never = new AbortController().signal;

async function plusOne(value: number): Promise<number> {
  return value + 1;
}

/** Adds one to a shared count. The broken version reads the count before it awaits. */
class Counter {
  value = 0;
  readonly #isBroken: boolean;

  constructor(isBroken: boolean) {
    this.#isBroken = isBroken;
  }

  async add(): Promise<void> {
    if (this.#isBroken) {
      this.value = await plusOne(this.value);
    } else {
      await plusOne(0);
      this.value += 1;
    }
  }
}

const counts = (counter: Counter, expected: number) => ({
  state: () => String(counter.value),
  final: () => assert.equal(counter.value, expected, 'an update was lost'),
});

/** Each model by whether the bug is in it. */
const LOST_UPDATES: Record<string, (isBroken: boolean) => Build> = {
  'two tasks start in one turn': (isBroken) => (world) => {
    const counter = new Counter(isBroken);
    for (const name of ['a', 'b']) world.task(name, () => counter.add());
    return counts(counter, 2);
  },
  'two I/O operations complete in one turn': (isBroken) => (world) => {
    const counter = new Counter(isBroken);
    for (const name of ['a', 'b']) {
      world.task(name, async () => {
        await world.io('read');
        await counter.add();
      });
    }
    return counts(counter, 2);
  },
  'one step wakes two receivers': (isBroken) => (world) => {
    const counter = new Counter(isBroken);
    const channel = new Mpsc<number>('jobs', 4);
    for (const name of ['a', 'b']) {
      world.task(name, async () => {
        await channel.recv(never);
        await counter.add();
      });
    }
    world.task('sender', async () => {
      channel.trySend(1);
      channel.trySend(2);
    });
    return counts(counter, 2);
  },
  'a waiter goes on in the microtasks of its waker': (isBroken) => (world) => {
    const counter = new Counter(isBroken);
    const parked = sched.park<void>('gate');
    world.task('waiter', async () => {
      await parked.promise;
      await counter.add();
    });
    world.task('waker', async () => {
      parked.wake();
      await counter.add();
    });
    return counts(counter, 2);
  },
  'a task that code starts goes on in the microtasks of its parent': (isBroken) => (world) => {
    const counter = new Counter(isBroken);
    world.task('parent', async () => {
      const child = sched.task('child', () => counter.add());
      await counter.add();
      await child;
    });
    return counts(counter, 2);
  },
  'three steps complete in one turn': (isBroken) => (world) => {
    let inside = 0;
    let most = 0;
    for (const name of ['a', 'b', 'c']) {
      world.task(name, async () => {
        inside++;
        await plusOne(0);
        most = Math.max(most, inside);
        inside--;
      });
    }
    return { final: () => assert.ok(most < 3 || !isBroken, 'an update was lost') };
  },
};

for (const [where, model] of Object.entries(LOST_UPDATES)) {
  test(`a lost update across a plain await is found where ${where}`, async () => {
    await assertHolds(model(false));
    await assertCaught(model(true), {}, /an update was lost/);
  });
}

test('the trace marks the steps that complete in one turn', async () => {
  const model = LOST_UPDATES['two I/O operations complete in one turn']!;
  const { failure } = await assertCaught(model(true));
  assert.deepEqual(failure.trace, ['a: start', 'b: start', 'b: read', '+ a: read']);
});

/** Entries that expire by a timer each. The broken reader takes for granted that a timer is never late. */
const expiry =
  (isBroken: boolean): Build =>
  (world) => {
    const entries: { readonly due_ms: number; isDead: boolean }[] = [];
    for (const delay_ms of [10, 12]) {
      const entry = { due_ms: sched.now_ms() + delay_ms, isDead: false };
      entries.push(entry);
      sched.timer(delay_ms, () => (entry.isDead = true), 'expire');
    }
    world.task('reader', async () => {
      await sleep(11, never);
      const now_ms = sched.now_ms();
      for (const { due_ms, isDead } of entries) {
        if (isDead || (!isBroken && now_ms >= due_ms)) continue;
        assert.ok(now_ms < due_ms, 'an entry is alive past its time');
      }
    });
    return {};
  };

test('a timer that fires late is found', async () => {
  await assertHolds(expiry(false));
  await assertCaught(expiry(true), {}, /alive past its time/);
});

test('a clock that passes several due times before any timer fires is found', async () => {
  await assertCaught(
    (world) => {
      const fired: string[] = [];
      for (const delay_ms of [10, 20, 30]) sched.timer(delay_ms, () => fired.push(`${delay_ms}`), 'timer');
      world.task('reader', async () => {
        assert.ok(sched.now_ms() < 30 || fired.length > 0, 'all are late');
      });
      return {};
    },
    {},
    /all are late/,
  );
});

/** The shape that `Deadline.run` once had: it is live at the first reading of the clock, and over at the second. */
const twoReadings =
  (isBroken: boolean): Build =>
  (world) => {
    world.task('caller', async () => {
      const expires_ms = sched.now_ms() + 5;
      const first_ms = sched.now_ms();
      if (first_ms >= expires_ms) return;
      const parked = sched.park<void>('work');
      const second_ms = isBroken ? sched.now_ms() : first_ms;
      let timer: Timer | undefined;
      if (second_ms < expires_ms) timer = sched.timer(expires_ms - second_ms, () => parked.wake(), 'expire');
      await parked.promise;
      timer?.cancel();
    });
    return {};
  };

test('time that passes between two readings of the clock in one synchronous step is found', async () => {
  await assertHolds(twoReadings(false));
  await assertCaught(twoReadings(true), {}, /^deadlock: .*caller at work/);
});

test('a bug at either end of the random values is found', async () => {
  for (const isBad of [(value: number) => value === 0, (value: number) => value > 0.999]) {
    await assertCaught(
      (world) => {
        world.task('drawer', async () => assert.ok(!isBad(sched.random()), 'a bad value'));
        return {};
      },
      {},
      /a bad value/,
    );
  }
});

/** Two receivers wait in one channel; which of them came first is nowhere in the state. */
const served =
  (isBroken: boolean): Build =>
  (world) => {
    const channel = new Mpsc<number>('jobs', 2);
    const got: string[] = [];
    const waiting = new Set<string>();
    for (const name of ['a', 'b']) {
      const receive = async (): Promise<void> => {
        waiting.add(name);
        if ((await channel.recv(never)) !== undefined) got.push(name);
      };
      world.task(name, receive, { daemon: true });
    }
    world.task('sender', async () => {
      if (waiting.size === 2) channel.trySend(1);
    });
    return {
      state: () => [got, [...waiting].toSorted(), channel.depth].join(';'),
      final: () => assert.ok(!isBroken || got[0] !== 'b', 'b was served first'),
    };
  };

test('the order of waiters is part of a state', async () => {
  for (const options of [{}, { hash: true }, { sleepSets: true }, { hash: true, sleepSets: true }]) {
    await assertHolds(served(false), options);
    await assertCaught(served(true), options, /b was served first/);
  }
});

/** A semaphore that hands a permit over to the first in line. A caller that was aborted meanwhile must pass it on. */
class Semaphore {
  free = 1;
  readonly #line: { readonly wake: () => void; readonly fail: (error: unknown) => void }[] = [];
  readonly #isBroken: boolean;

  constructor(isBroken: boolean) {
    this.#isBroken = isBroken;
  }

  async acquire(signal: AbortSignal): Promise<void> {
    if (this.free > 0 && this.#line.length === 0) {
      this.free--;
      return;
    }
    const parked = sched.park<void>('permit');
    this.#line.push(parked);
    const leave = (): void => {
      const at = this.#line.indexOf(parked);
      if (at < 0) return;
      this.#line.splice(at, 1);
      parked.fail(signal.reason);
    };
    signal.addEventListener('abort', leave, { once: true });
    await parked.promise;
    signal.removeEventListener('abort', leave);
    if (!signal.aborted) return;
    if (!this.#isBroken) this.release();
    throw signal.reason;
  }

  release(): void {
    const next = this.#line.shift();
    if (next === undefined) this.free++;
    else next.wake();
  }
}

const permits =
  (isBroken: boolean): Build =>
  (world) => {
    const semaphore = new Semaphore(isBroken);
    const leaving = new AbortController();
    let inside = 0;
    for (const [name, signal] of [
      ['holder', never],
      ['leaver', leaving.signal],
    ] as const) {
      world.task(name, async () => {
        try {
          await semaphore.acquire(signal);
        } catch {
          return;
        }
        inside++;
        await world.io('work');
        inside--;
        semaphore.release();
      });
    }
    world.task('abort', async () => leaving.abort(new Error('gone')));
    return {
      invariant: () => assert.ok(inside <= 1, 'two are inside'),
      final: () => assert.equal(semaphore.free, 1, 'a permit was lost'),
    };
  };

test('a permit that is handed to a caller that has just left is found', async () => {
  await assertHolds(permits(false));
  await assertCaught(permits(true), {}, /a permit was lost/);
});

test('an item that is handed to a receiver that has just left is found', async () => {
  const handOver =
    (isBroken: boolean): Build =>
    (world) => {
      const channel = new Mpsc<number>('jobs', 2);
      const leaving = new AbortController();
      const got: number[] = [];
      world.task('receiver', async () => {
        const receive = async (): Promise<number | undefined> => await channel.recv(leaving.signal);
        const item = await receive().catch(() => undefined);
        if (item !== undefined && !(isBroken && leaving.signal.aborted)) got.push(item);
      });
      world.task('sender', async () => {
        channel.trySend(1);
        channel.trySend(2);
      });
      world.task('abort', async () => leaving.abort(new Error('gone')));
      return { final: () => assert.equal(got.length + channel.depth, 2, 'an item was lost') };
    };
  await assertHolds(handOver(false));
  await assertCaught(handOver(true), {}, /an item was lost/);
});

test('a model without any bug is complete', async () => {
  const { complete } = await explore(LOST_UPDATES['one step wakes two receivers']!(false));
  assert.equal(complete, true);
});
