import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { REPAIR_CLASSES, type RepairClass } from '@ron/proto';
import { RepairQueue, type RepairJob } from './repair-queue.ts';

const { signal } = new AbortController();

function job(number: number, of: RepairClass = 'rf'): RepairJob {
  return { kind: 'content', id: Uint8Array.from({ length: 32 }, () => number), class: of };
}

async function drain(queue: RepairQueue): Promise<string[]> {
  const out: string[] = [];
  while (queue.depth > 0) {
    const taken = (await queue.take(signal))!;
    out.push(`${taken.class} ${taken.id[0]}`);
    queue.done(taken);
  }
  return out;
}

test('last copies come first, then copies, then parity; each in the order in which they were planned', async () => {
  const queue = new RepairQueue();
  for (const each of [job(1, 'parity'), job(2), job(3, 'last'), job(4, 'parity'), job(5, 'last')]) queue.offer(each);
  assert.deepEqual(await drain(queue), ['last 3', 'last 5', 'rf 2', 'parity 1', 'parity 4']);
});

test('a full queue drops the newest job of the lowest class, and never a more urgent one', async () => {
  const skipped: string[] = [];
  const queue = new RepairQueue({ capacity: 3, onSkipped: (each) => skipped.push(`${each.class} ${each.id[0]}`) });
  for (const each of [job(1, 'parity'), job(2, 'parity'), job(3)]) assert.equal(queue.offer(each), 'queued');
  assert.equal(queue.offer(job(4, 'parity')), 'skipped');
  assert.equal(queue.offer(job(5)), 'queued');
  assert.equal(queue.offer(job(6, 'last')), 'queued');
  assert.equal(queue.offer(job(7)), 'skipped');
  assert.equal(queue.offer(job(8, 'last')), 'queued');
  assert.equal(queue.offer(job(9, 'last')), 'queued');
  assert.equal(queue.offer(job(10, 'last')), 'skipped');
  assert.deepEqual(skipped, ['parity 4', 'parity 2', 'parity 1', 'rf 7', 'rf 5', 'rf 3', 'last 10']);
  // [storage I-3]
  assert.equal(queue.skipped_total, skipped.length);
  assert.deepEqual(await drain(queue), ['last 6', 'last 8', 'last 9']);
});

test('a record is queued once, even while it is repaired; a more urgent job moves up', async () => {
  const queue = new RepairQueue({ capacity: 2 });
  assert.equal(queue.offer(job(1)), 'queued');
  assert.equal(queue.offer(job(1)), 'known');
  assert.equal(queue.offer(job(2)), 'queued');
  assert.equal(queue.offer(job(2, 'last')), 'queued', 'even if it is full');
  assert.equal(queue.depth, 2);
  const taken = (await queue.take(signal))!;
  assert.equal(taken.id[0], 2);
  assert.equal(queue.offer(job(2, 'last')), 'known');
  queue.done(taken);
  assert.equal(queue.offer(job(2, 'last')), 'queued');
  assert.equal(queue.offer({ ...job(2), kind: 'object' }), 'skipped', 'another kind is another thing');
});

test('a waiting taker gets the next job, a waiting planner gets room, and an abort loses nothing', async () => {
  const queue = new RepairQueue({ capacity: 1 });
  const control = new AbortController();
  const aborted = assert.rejects(queue.take(control.signal), /enough/);
  control.abort(new Error('enough'));
  await aborted;
  const waiting = queue.take(signal);
  queue.offer(job(1));
  assert.equal((await waiting)!.id[0], 1);
  queue.offer(job(2));
  const room = queue.room(signal);
  assert.equal((await queue.take(signal))!.id[0], 2);
  await room;
  assert.ok(queue.hasRoom);
});

test('a closed queue accepts nothing, its jobs can be taken, and all takers end', async () => {
  const queue = new RepairQueue({ capacity: 1 });
  queue.offer(job(1));
  const room = queue.room(signal);
  queue.close();
  await room;
  assert.equal(queue.offer(job(2)), 'known');
  assert.equal((await queue.take(signal))!.id[0], 1);
  assert.equal(await queue.take(signal), undefined);
});

test('it never exceeds its capacity, holds no duplicates, and never drops a job before a less urgent one', async () => {
  const offers = fc.array(fc.record({ number: fc.nat(12), of: fc.constantFrom(...REPAIR_CLASSES) }), { maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(offers, fc.integer({ min: 1, max: 6 }), async (all, capacity) => {
      const queue = new RepairQueue({ capacity });
      const best = new Map<number, number>();
      for (const { number, of } of all) {
        queue.offer(job(number, of));
        best.set(number, Math.min(best.get(number) ?? 9, REPAIR_CLASSES.indexOf(of)));
        assert.ok(queue.depth <= capacity);
      }
      const out = await drain(queue);
      assert.equal(new Set(out.map((each) => each.split(' ')[1])).size, out.length);
      // As many of the most urgent as there is room for are there.
      const urgent = [...best.values()].filter((rank) => rank === 0).length;
      assert.equal(out.filter((each) => each.startsWith('last')).length, Math.min(urgent, capacity));
    }),
  );
});

test('a copy that could not be read is recorded even if its repair is queued already', async () => {
  const queue = new RepairQueue();
  queue.offer(job(1));
  queue.offer({ ...job(2), suspect: 'a' });
  assert.equal(queue.offer({ ...job(1), suspect: 'b' }), 'known');
  assert.equal(queue.offer(job(2, 'last')), 'queued');
  const [first, second] = [await queue.take(signal), await queue.take(signal)];
  assert.deepEqual([first?.suspect, first?.class, second?.suspect], ['a', 'last', 'b']);
});

/** The contract of the queue as a simple reference implementation. */
class Definition {
  readonly capacity: number;
  jobs: { number: number; rank: number; at: number }[] = [];
  readonly inflight = new Set<number>();
  #at = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  offer(number: number, rank: number): string {
    const queued = this.jobs.find((each) => each.number === number);
    if (this.inflight.has(number) || (queued !== undefined && queued.rank <= rank)) return 'known';
    this.jobs = this.jobs.filter((each) => each !== queued);
    if (this.jobs.length === this.capacity) {
      const lowest = Math.max(...this.jobs.map((each) => each.rank));
      if (lowest <= rank) return 'skipped';
      const newest = this.jobs.filter((each) => each.rank === lowest).toSorted((a, b) => b.at - a.at)[0];
      this.jobs = this.jobs.filter((each) => each !== newest);
    }
    this.jobs.push({ number, rank, at: this.#at++ });
    return 'queued';
  }

  take(): number | undefined {
    const [first] = this.jobs.toSorted((a, b) => a.rank - b.rank || a.at - b.at);
    this.jobs = this.jobs.filter((each) => each !== first);
    if (first !== undefined) this.inflight.add(first.number);
    return first?.number;
  }
}

test('offers, takes and ends in any order match the reference implementation', async () => {
  const step = fc.oneof(
    { weight: 5, arbitrary: fc.record({ number: fc.nat(9), of: fc.constantFrom(...REPAIR_CLASSES) }) },
    { weight: 1, arbitrary: fc.constant('take' as const) },
    { weight: 1, arbitrary: fc.constant('done' as const) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 80 }), fc.integer({ min: 1, max: 5 }), async (steps, capacity) => {
      const queue = new RepairQueue({ capacity });
      const definition = new Definition(capacity);
      const working: RepairJob[] = [];
      for (const each of steps) {
        if (each === 'done') {
          const ended = working.shift();
          if (ended === undefined) continue;
          queue.done(ended);
          definition.inflight.delete(ended.id[0]!);
        } else if (each === 'take') {
          const expected = definition.take();
          assert.equal(queue.depth > 0, expected !== undefined);
          if (expected === undefined) continue;
          const taken = (await queue.take(signal))!;
          assert.equal(taken.id[0], expected);
          working.push(taken);
        } else {
          const expected = definition.offer(each.number, REPAIR_CLASSES.indexOf(each.of));
          assert.equal(queue.offer(job(each.number, each.of)), expected);
        }
        assert.equal(queue.depth, definition.jobs.length);
        assert.equal(queue.inflight, definition.inflight.size);
      }
      for (let left = definition.take(); left !== undefined; left = definition.take()) {
        assert.equal((await queue.take(signal))!.id[0], left);
      }
    }),
  );
});
