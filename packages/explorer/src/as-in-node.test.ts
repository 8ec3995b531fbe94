/** Node itself as the reference: each order that it produces must be among those that the explorer tries. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Mpsc, NEVER } from '@ron/kernel';
import { sched } from '@ron/kernel/sched';
import fc from 'fast-check';
import { endings, type Build, type World } from './index.ts';

const OPS = ['log', 'hop', 'helper', 'add', 'io', 'send', 'receive', 'spawn', 'pause'] as const;
type Op = (typeof OPS)[number];

/** The operations that a program uses. */
type Ground = Pick<World, 'task' | 'io'>;

/** Tasks that log their operations, so that each order of their microtasks ends in another state. */
function program(world: Ground, tasks: readonly (readonly Op[])[]): () => string {
  const log: string[] = [];
  const channel = new Mpsc<string>('jobs', 8);
  let count = 0;
  const helper = async (value: number): Promise<number> => value + 1;
  const execute: Record<Op, (me: string) => unknown> = {
    log: (me) => log.push(me),
    hop: () => undefined,
    helper: () => helper(0),
    add: async () => {
      count = await helper(count);
    },
    io: () => world.io('io'),
    send: (me) => channel.trySend(me),
    receive: async (me) => log.push(`${me}<${await channel.recv(NEVER)}`),
    spawn: (me) => sched.task('child', async () => log.push(`${me}'`)),
    pause: () => sched.pause('pause'),
  };
  tasks.forEach((ops, index) => {
    const me = 'abc'[index] as string;
    const run = async (): Promise<void> => {
      // A pause waits for tasks that have not started, so a task that may come later begins with an operation.
      await world.io('arrival');
      for (const op of ops) {
        await execute[op](me);
        log.push(me);
      }
    };
    world.task(me, run, { daemon: true });
  });
  return () => `${log.join('')} ${count}`;
}

/** Runs it on the real event loop; `turns` says how many of the pending operations complete in each turn. */
async function inNode(tasks: readonly (readonly Op[])[], turns: readonly number[]): Promise<string> {
  const pending: (() => void)[] = [];
  const state = program(
    {
      task: (_name, run) => void run(),
      io: () => new Promise((resolve) => pending.push(resolve)),
    },
    tasks,
  );
  const sizes = [...turns];
  for (let idle = 0; idle < 3; idle++) {
    // Its microtasks have run when the next macrotask begins.
    await macrotask(() => {
      if (pending.length > 0) idle = 0;
      for (const complete of pending.splice(0, sizes.shift() ?? 1)) complete();
    });
  }
  return state();
}

function macrotask(work: () => void): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(() => {
      work();
      setImmediate(resolve);
    });
  });
}

const programs = fc.array(fc.array(fc.constantFrom(...OPS), { minLength: 1, maxLength: 3 }), {
  minLength: 2,
  maxLength: 3,
});
const PROGRAMS_COUNT = Number(process.env['EXPLORER_PROGRAMS'] ?? 12) * 2;

test('every order that Node produces is among those that are explored', async () => {
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(programs, fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 6 }), async (tasks, turns) => {
      const build: Build = (world) => ({ state: program(world, tasks) });
      const explored = await endings(build, { schedules_max: 400 }).catch(() => undefined);
      fc.pre(explored !== undefined);
      compared++;
      const real = `state ${await inNode(tasks, turns)}`;
      assert.ok(explored.has(real), `${JSON.stringify(tasks)} in turns of ${turns.join()}: ${real}`);
    }),
    { numRuns: PROGRAMS_COUNT },
  );
  assert.ok(compared > 0);
});
