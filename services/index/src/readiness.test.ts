import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Readiness } from '@ron/ingress';
import { Broadcast, Deadline, NEVER, WorkQueue } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { gatesOf, type GatesInit } from './readiness.ts';

/** The gates on real channels; a problem of another part can be set. */
function bench() {
  const problems: Record<'store' | 'dht' | 'names' | 'config', string | undefined> = {
    store: undefined,
    dht: undefined,
    names: undefined,
    config: undefined,
  };
  const part = (name: 'store' | 'dht' | 'names') => ({
    get problem() {
      return problems[name];
    },
  });
  const work = new WorkQueue('work', { capacity: 512, lanes: ['/resolve'], budget_ms: 1000 });
  const events = new Broadcast<number>('events', 2);
  const init: GatesInit = {
    store: part('store'),
    dht: part('dht'),
    names: part('names'),
    work,
    events,
    configProblem: () => problems.config,
  };
  const readiness = new Readiness();
  for (const [name, gate] of Object.entries(gatesOf(init))) readiness.gate(name, gate);
  return { problems, work, events, readiness };
}

for (const [gate, part, isReady] of [
  ['db', 'store', false],
  ['dht', 'dht', true],
  ['name_log', 'names', true],
  ['config', 'config', true],
] as const)
  test(`gate ${gate} closes and opens; ${isReady ? 'it degrades' : 'it makes the service not ready'}`, () => {
    const { problems, readiness } = bench();
    assert.deepEqual(readiness.report().degraded, []);
    problems[part] = 'out of order';
    const closed = readiness.report();
    assert.equal(closed.ready, isReady);
    assert.deepEqual(closed.degraded, isReady ? [gate] : []);
    assert.equal(closed.gates.find((each) => each.gate === gate)?.reason, 'out of order');
    problems[part] = undefined;
    assert.deepEqual(readiness.report(), bench().readiness.report());
  });

test('gate shedding closes while lookups wait too long, and opens when the queue is empty', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { work, readiness } = bench();
    const submit = () => work.submit('/resolve', Deadline.after('resolve', 60_000), async () => undefined);
    const waiting = [submit(), submit(), submit()];
    // Longer than a target of 100 ms for five targets; a worker takes one late.
    for (let step = 0; step < 8; step += 1) {
      await clock.advance(200);
      waiting.push(submit());
      await (await work.take(NEVER))!.run();
    }
    assert.deepEqual(readiness.report().degraded, ['shedding']);
    while (work.depth > 0) await (await work.take(NEVER))!.run();
    await clock.advance(1);
    waiting.push(submit());
    await (await work.take(NEVER))!.run();
    assert.deepEqual(readiness.report().degraded, []);
    await Promise.allSettled(waiting);
    work.close();
  });
});

test('gate bus closes for a while after events were lost', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { events, readiness } = bench();
    events.subscribe('slow');
    events.publish(1);
    events.publish(2);
    assert.deepEqual(readiness.report().degraded, []);
    events.publish(3);
    assert.deepEqual(readiness.report().degraded, ['bus']);
    await clock.advance(29_999);
    assert.deepEqual(readiness.report().degraded, ['bus']);
    await clock.advance(1);
    assert.deepEqual(readiness.report().degraded, []);
  });
});
