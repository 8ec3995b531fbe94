import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FairTurns, QUANTUM_US } from './fair-turns.ts';

interface Job {
  readonly tenant: string;
  readonly cost_us: number;
  readonly number: number;
}

const job = (tenant: string, cost_us = 40, number = 0): Job => ({ tenant, cost_us, number });
const addOne = (turns: FairTurns<Job>, one: Job): boolean => turns.add(one.tenant, [one]);

test('one tenant alone is served in order', () => {
  const turns = new FairTurns<Job>(100);
  for (let number = 0; number < 40; number++) assert.ok(addOne(turns, job('acme', 40, number)));
  const served = Array.from({ length: 40 }, () => turns.next()?.number);
  assert.deepEqual(
    served,
    Array.from({ length: 40 }, (_, at) => at),
  );
  assert.equal(turns.next(), undefined);
});

test('a flood does not keep another tenant waiting: its jobs come within a round', () => {
  const turns = new FairTurns<Job>(512);
  for (let at = 0; at < 250; at++) addOne(turns, job('flood'));
  for (let at = 0; at < 8; at++) addOne(turns, job('zoo'));
  const served = Array.from({ length: 2 * (QUANTUM_US / 40) }, () => turns.next()!.tenant);
  assert.equal(served.filter((tenant) => tenant === 'zoo').length, 8);
});

test('tenants with work get equal parts, whatever a job costs', () => {
  const turns = new FairTurns<Job>(3000);
  for (let at = 0; at < 900; at++) addOne(turns, job('single', 40));
  for (let at = 0; at < 900; at++) addOne(turns, job('batch', 7200));
  const spent: Record<string, number> = { single: 0, batch: 0 };
  for (let at = 0; at < 600; at++) {
    const { tenant, cost_us } = turns.next()!;
    spent[tenant]! += cost_us;
  }
  assert.ok(Math.abs(spent['single']! - spent['batch']!) <= 7200 + QUANTUM_US, JSON.stringify(spent));
});

test('a tenant holds at most as many places as are still free, so another always finds one', () => {
  const turns = new FairTurns<Job>(512);
  const fill = (tenant: string): number => {
    let held = 0;
    while (addOne(turns, job(tenant))) held++;
    return held;
  };
  assert.equal(fill('flood'), 256);
  assert.equal(fill('second'), 128);
  assert.ok(addOne(turns, job('third')));
  assert.equal(addOne(turns, job('flood')), false);
});

test('the jobs of one request come in together or not at all, and leave room for another tenant', () => {
  const turns = new FairTurns<Job>(64);
  const request = Array.from({ length: turns.together_max }, () => job('batch'));
  let requests = 0;
  while (turns.add('batch', request)) requests++;
  assert.equal(turns.waiting, requests * request.length);
  assert.ok(requests >= 1);
  assert.ok(addOne(turns, job('zoo')));
});

test('what is served before a job of a tenant: its own work, and no more of each other', () => {
  const turns = new FairTurns<Job>(64);
  for (let at = 0; at < 10; at++) addOne(turns, job('flood', 1000));
  addOne(turns, job('zoo', 300));
  assert.equal(turns.workBefore_us('zoo', 100), 400 + 400);
  assert.equal(turns.workBefore_us('new', 100), 100 + 100 + 100);
  assert.equal(turns.workBefore_us('flood', 1000), 11_000 + 300);
});

test('nothing is lost, nothing is served twice, and the counts are right', () => {
  const step = fc.record({
    tenant: fc.constantFrom('a', 'b', 'c'),
    costs: fc.array(fc.integer({ min: 1, max: 20_000 }), { minLength: 1, maxLength: 8 }),
    take: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const turns = new FairTurns<Job>(32);
      const inside = new Map<string, Job[]>([
        ['a', []],
        ['b', []],
        ['c', []],
      ]);
      let number = 0;
      for (const { tenant, costs, take } of steps) {
        if (take) {
          const served = turns.next();
          if (served !== undefined) assert.equal(inside.get(served.tenant)!.shift(), served);
          else assert.equal(turns.waiting, 0);
        } else {
          const jobs = costs.map((cost_us) => job(tenant, cost_us, number++));
          if (turns.add(tenant, jobs)) inside.get(tenant)!.push(...jobs);
        }
        const all = [...inside.values()].flat();
        assert.equal(turns.waiting, all.length);
        assert.equal(
          turns.work_us,
          all.reduce((sum, { cost_us }) => sum + cost_us, 0),
        );
        assert.ok(all.length <= 32);
        assert.equal(turns.waitingOf(tenant), inside.get(tenant)!.length);
      }
    }),
  );
});
