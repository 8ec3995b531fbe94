import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, sched, type Parked } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { formatTarget, type Target } from '@ron/proto';
import { addressOf, dhtOf, objectOf, openResolving, SELF } from './testing/open-resolving.ts';

const ADDRESS = addressOf('object');
const TARGET: Target = { kind: 'address', address: ADDRESS };
type Opened = ReturnType<typeof openResolving>;

const find = ({ resolving }: Opened, deadline: Deadline, target: Target = TARGET) =>
  resolving.lookups.find({ lane: '/resolve', target, mode: 'usual', deadline, ip: '127.0.0.1' });
const codeOf = async (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'ok',
    (error: unknown) => (isRonError(error) ? error.code : String(error)),
  );
/** Reads of the database wait until the test wakes them. */
function heldReads(opened: Opened): Parked<void>[] {
  const held: Parked<void>[] = [];
  opened.store.gate = () => {
    const parked = sched.park<void>('read');
    held.push(parked);
    return parked.promise;
  };
  return held;
}

test('callers of one target share one lookup, and the answer is cached', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, clock.wall_ms() - 4000));
    using deadline = Deadline.after('test', 1200);
    const [one, two] = await Promise.all([find(opened, deadline), find(opened, deadline)]);
    assert.equal(one, two);
    assert.equal(opened.store.reads, 1);
    assert.deepEqual(
      one.providers.map(({ id, url, proof, age_s }) => ({ id, url, proof, age_s })),
      [{ ...SELF, proof: 'unproven', age_s: 4 }],
    );
    assert.deepEqual([one.source, one.complete, one.size], ['db', true, 5]);
    assert.deepEqual(opened.evidence.requested, [SELF.id], 'an unproven provider is probed');
    await clock.advance(0);
    assert.equal(opened.resolving.cache.get(ADDRESS)?.resolution, one);
    await clock.advance(10_001);
    assert.equal(opened.resolving.cache.get(ADDRESS), undefined, 'it is fresh for 10 s');
  });
});

test('[index I-4] each caller leaves at its own deadline, and the lookup goes on to fill the cache', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    const held = heldReads(opened);
    using short = Deadline.after('short', 300);
    const outcome = codeOf(find(opened, short));
    await clock.advance(300);
    assert.equal(await outcome, 'timeout');
    held[0]!.wake();
    await clock.advance(0);
    assert.ok(opened.resolving.cache.get(ADDRESS)?.resolution);
  });
});

test('a caller with time left after a lookup timed out starts a new one', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    const held = heldReads(opened);
    using first = Deadline.after('first', 1200);
    const early = codeOf(find(opened, first));
    await clock.advance(600);
    using second = Deadline.after('second', 1200);
    const late = codeOf(find(opened, second));
    await clock.advance(600);
    assert.equal(await early, 'timeout');
    await clock.advance(1);
    assert.equal(held.length, 2, 'the second caller leads a lookup of its own');
    held[1]!.wake();
    assert.equal(await late, 'ok');
    held[0]!.wake();
  });
});

test('a change detaches the running lookup: later callers see it, and the older answer is not cached', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    const held = heldReads(opened);
    using deadline = Deadline.after('test', 1200);
    const before = codeOf(find(opened, deadline));
    await clock.advance(0);
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.resolving.invalidator.invalidate([ADDRESS]);
    const after = codeOf(find(opened, deadline));
    await clock.advance(0);
    for (const parked of held) parked.wake();
    assert.equal(await after, 'ok');
    assert.equal(await before, 'not_found', 'it began before the change');
    await clock.advance(0);
    assert.ok(opened.resolving.cache.get(ADDRESS)?.resolution, 'the cached answer is the newer one');
  });
});

test('[index I-9] a full queue refuses at once, and reads of other lanes keep their reserve', async () => {
  await using opened = openResolving({ capacity: 16, workers: 1 });
  heldReads(opened);
  using deadline = Deadline.after('test', 60_000);
  const outcomes = Array.from({ length: 40 }, (_, at) =>
    codeOf(find(opened, deadline, { kind: 'address', address: addressOf(`${at}`) })),
  );
  assert.deepEqual(new Set(await Promise.all(outcomes.slice(20))), new Set(['busy']));
  assert.ok(opened.work.busyOf('/resolve') > 0);
  const reserved = opened.work.capacity - opened.work.depthOf('/resolve');
  assert.equal(reserved, 2, 'the reserve of the other lane is left');
  deadline.cancel();
  await Promise.all(outcomes);
});

test('an absent object is cached for at most 2 s; an incomplete answer is not negative', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    using deadline = Deadline.after('test', 1200);
    assert.equal(await codeOf(find(opened, deadline)), 'not_found');
    await clock.advance(0);
    assert.equal(opened.resolving.cache.get(ADDRESS)?.refusal?.code, 'not_found');
    await clock.advance(2001);
    assert.equal(opened.resolving.cache.get(ADDRESS), undefined);
    await using partial = openResolving({ dht: () => dhtOf({ complete: false, empty: 'none_has_it' }) });
    using second = Deadline.after('test', 1200);
    assert.equal(await codeOf(find(partial, second)), 'not_found');
    await clock.advance(0);
    assert.equal(partial.resolving.cache.get(formatTarget(TARGET)), undefined);
  });
});

test('an incomplete answer is cached for at most 2 s', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const providers = [{ id: '12D3KooWPeer', url: 'http://192.0.2.1:7101', reporters: 1 }];
    await using opened = openResolving({ dht: () => dhtOf({ providers, complete: false }) });
    using deadline = Deadline.after('test', 1200);
    assert.equal((await find(opened, deadline)).complete, false);
    await clock.advance(0);
    assert.ok(opened.resolving.cache.get(ADDRESS)?.resolution);
    await clock.advance(2001);
    assert.equal(opened.resolving.cache.get(ADDRESS), undefined);
  });
});
