/**
 * The cost of the kernel's primitives. `node bench/kernel.ts [--quick]`
 *
 * Bars: an item through a channel under 0.5 us when each one is awaited and under 50 ns in batches, no
 * allocation per item in steady state; a finished task leaves nothing on the heap; admission of a request under 20 ns.
 */
import { Admission, Breaker, Deadline, Mpsc, sched, Supervisor, TokenBucket } from '@ron/kernel';
import { liveHeap_bytes, measure, nsEach, nsEachAsync, quick, report, type Case } from './lib.ts';

const REPEATS = quick ? 5 : 7;
/** Enough iterations of an operation of a few nanoseconds to be measurable. */
const ITEMS = quick ? 2_000_000 : 5_000_000;
const ITEMS_SLOW = ITEMS / 10;
const ITEMS_AWAITED = quick ? 100_000 : 500_000;
const TASKS = quick ? 100_000 : 1_000_000;
const TASKS_AT_ONCE = 100;
const BATCH = 256;

/** Never aborted. */
const LIMITS = { inflight_max: 1e9, connections_max: 1024, connections_per_ip_max: 256 };
const BREAKER = { error_window_ms: 10_000, trip_threshold: 0.5, calls_min: 20, cooldown_ms: 1000, half_open_probes: 3 };

const forever = new AbortController().signal;
/** A sink for results, so that no loop is optimized away. */
let sink = 0;
const done = Promise.resolve();

/** One sender, and one receiver that is parked and woken for every item. */
async function mpscAwaited(): Promise<number> {
  const channel = new Mpsc<number>('bench', 16);
  let found_waiting = 0;
  const receiver = async (): Promise<void> => {
    for (;;) {
      const item = await channel.recv(forever);
      if (item === undefined) return;
      sink += item;
    }
  };
  const ended = receiver();
  const ns = await nsEachAsync(ITEMS_AWAITED, async () => {
    for (let i = 0; i < ITEMS_AWAITED; i++) {
      channel.trySend(i);
      if (channel.depth === 0) found_waiting++;
      // The receiver was woken first, so it takes the item and waits again before the sender continues.
      await done;
    }
  });
  channel.close();
  await ended;
  if (found_waiting !== ITEMS_AWAITED) throw new Error('the receiver did not wait for every item');
  return ns;
}

function sendAndReceive(channel: Mpsc<number>, items: number): void {
  for (let sent = 0; sent < items; sent += BATCH) {
    for (let i = 0; i < BATCH; i++) channel.trySend(i);
    const got = channel.recvMany(BATCH, forever, into) as number[];
    sink += got.length;
  }
}

// Measured objects are kept alive, like in a service: V8 drops optimized code with the last object of its shape, and then
// the compiler would be measured.
const batched = new Mpsc<number>('bench', BATCH);
const unlimited = new Admission(LIMITS);
const limited = new Admission({ ...LIMITS, rps_limit: 1e9, rps_burst: 250 });
const bucket = new TokenBucket('bench', { rate_per_s: 1e9, burst: 1e6 });
const breaker = new Breaker('bench', BREAKER);
const into: number[] = [];

function mpscBatched(): number {
  return nsEach(ITEMS, () => sendAndReceive(batched, ITEMS));
}

/** Heap growth without garbage collection, for each item through a warm channel. */
function mpscAllocated(): number {
  const items = BATCH * 400;
  const before_bytes = liveHeap_bytes();
  sendAndReceive(batched, items);
  return Math.max(0, process.memoryUsage().heapUsed - before_bytes) / items;
}

/** Bytes left on the heap for each finished task of a supervisor. */
async function taskLeftovers(): Promise<number> {
  const supervisor = new Supervisor();
  const work = async (): Promise<void> => {
    await done;
    sink++;
  };
  const run = async (tasks: number): Promise<void> => {
    for (let ran = 0; ran < tasks; ran += TASKS_AT_ONCE) {
      await Promise.all(Array.from({ length: TASKS_AT_ONCE }, () => supervisor.run('bench', work)));
    }
  };
  await run(TASKS / 10);
  const before_bytes = liveHeap_bytes();
  const ns = await nsEachAsync(TASKS, () => run(TASKS));
  task_ns.push(ns);
  const after_bytes = liveHeap_bytes();
  await supervisor.stop({ drain_ms: 100 });
  return Math.max(0, after_bytes - before_bytes) / TASKS;
}

/** Times of the runs of `taskLeftovers`. */
const task_ns: number[] = [];

function deadlineUnused(): number {
  return nsEach(ITEMS_SLOW, () => {
    for (let i = 0; i < ITEMS_SLOW; i++) {
      const deadline = Deadline.after('bench', 1000);
      sink += deadline.budget_ms;
      deadline[Symbol.dispose]();
    }
  });
}

function deadlineWaitedOn(): number {
  const count = ITEMS_SLOW / 10;
  const outer = new AbortController().signal;
  return nsEach(count, () => {
    for (let i = 0; i < count; i++) {
      const deadline = Deadline.after('bench', 1000, { signal: outer });
      if (deadline.signal.aborted) sink++;
      deadline[Symbol.dispose]();
    }
  });
}

function enter(admission: Admission): number {
  return nsEach(ITEMS, () => {
    for (let i = 0; i < ITEMS; i++) if (admission.tryEnter() !== 'ok') sink++;
  });
}

function tryTake(): number {
  return nsEach(ITEMS_SLOW, () => {
    for (let i = 0; i < ITEMS_SLOW; i++) if (bucket.tryTake()) sink++;
  });
}

function breakerCall(): number {
  return nsEach(ITEMS_SLOW, () => {
    for (let i = 0; i < ITEMS_SLOW; i++) breaker.tryAcquire()?.success();
  });
}

function readClock(): number {
  return nsEach(ITEMS_SLOW, () => {
    for (let i = 0; i < ITEMS_SLOW; i++) sink += sched.now_ms();
  });
}

const CASES: Case[] = [
  { name: 'mpsc, awaited', unit: 'ns/item', bar: 500, note: 'parked and woken for each item', run: mpscAwaited },
  { name: 'mpsc, batched', unit: 'ns/item', bar: 50, note: `recvMany(${BATCH})`, run: mpscBatched },
  { name: 'mpsc, allocated', unit: 'bytes/item', bar: 1, note: 'steady state, batched', run: mpscAllocated },
  { name: 'task, left on the heap', unit: 'bytes/task', bar: 1, note: `over ${TASKS} tasks`, run: taskLeftovers },
  { name: 'task, run to its end', unit: 'ns/task', run: () => task_ns.at(-1)! },
  { name: 'deadline, never waited on', unit: 'ns', note: 'create and dispose; one clock read', run: deadlineUnused },
  { name: 'deadline, with signal', unit: 'ns', note: 'controller, timer, outer signal', run: deadlineWaitedOn },
  {
    name: 'admission, no rate',
    unit: 'ns',
    bar: 20,
    note: 'tryEnter',
    run: () => enter(unlimited),
  },
  {
    name: 'admission, with a rate',
    unit: 'ns',
    bar: 20,
    note: 'tryEnter, burst 250',
    run: () => enter(limited),
  },
  { name: 'token bucket, tryTake', unit: 'ns', note: 'one clock read', run: tryTake },
  { name: 'breaker, a good call', unit: 'ns', note: 'one clock read', run: breakerCall },
  { name: 'reading the clock', unit: 'ns', note: 'for comparison', run: readClock },
];

report('kernel', 'Kernel primitives', await measure(CASES, REPEATS));
if (sink === Number.MIN_VALUE) process.stdout.write('\n');
