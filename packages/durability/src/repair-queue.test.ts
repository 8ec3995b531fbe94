import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { REPAIR_CLASSES, RepairQueue, type RepairClass, type RepairJob } from './repair-queue.ts';

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

test('a full queue gives up the newest of the lowest class, and never something more urgent', async () => {
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
  assert.equal(queue.skipped_total, skipped.length);
  assert.deepEqual(await drain(queue), ['last 6', 'last 8', 'last 9']);
});

test('the same thing is queued once, also while it is worked on; a more urgent one moves up', async () => {
  const queue = new RepairQueue({ capacity: 2 });
  assert.equal(queue.offer(job(1)), 'queued');
  assert.equal(queue.offer(job(1)), 'known');
  assert.equal(queue.offer(job(2)), 'queued');
  assert.equal(queue.offer(job(2, 'last')), 'queued', 'also when it is full');
  assert.equal(queue.depth, 2);
  const taken = (await queue.take(signal))!;
  assert.equal(taken.id[0], 2);
  assert.equal(queue.offer(job(2, 'last')), 'known');
  queue.done(taken);
  assert.equal(queue.offer(job(2, 'last')), 'queued');
  assert.equal(queue.offer({ ...job(2), kind: 'object' }), 'skipped', 'another kind is another thing');
});

test('who waits for a job gets the next, who waits for room gets it, and an abort loses nothing', async () => {
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

test('when it is closed nothing comes in, what is queued comes out, and everybody goes', async () => {
  const queue = new RepairQueue({ capacity: 1 });
  queue.offer(job(1));
  const room = queue.room(signal);
  queue.close();
  await room;
  assert.equal(queue.offer(job(2)), 'known');
  assert.equal((await queue.take(signal))!.id[0], 1);
  assert.equal(await queue.take(signal), undefined);
});

test('it never holds more than its capacity, nor the same thing twice, nor lets a lesser one outlive a greater', async () => {
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
