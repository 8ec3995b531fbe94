import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FairTurns } from './fair-turns.ts';

test('one tenant alone is served in order', () => {
  const turns = new FairTurns<number>(100);
  for (let item = 0; item < 40; item++) assert.ok(turns.add('acme', item, 1));
  const served = Array.from({ length: 40 }, () => turns.next());
  assert.deepEqual(
    served,
    Array.from({ length: 40 }, (_, at) => at),
  );
  assert.equal(turns.next(), undefined);
});

test('a flood does not keep another tenant waiting: its jobs come within a round', () => {
  const turns = new FairTurns<string>(512);
  for (let item = 0; item < 256; item++) turns.add('flood', 'flood', 1);
  for (let item = 0; item < 8; item++) turns.add('zoo', 'zoo', 1);
  const served = Array.from({ length: 32 }, () => turns.next());
  assert.equal(served.filter((item) => item === 'zoo').length, 8);
});

test('tenants with work get equal parts, whatever a job costs', () => {
  const turns = new FairTurns<{ tenant: string; cost: number }>(3000);
  const add = (tenant: string, cost: number): void => void turns.add(tenant, { tenant, cost }, cost);
  for (let at = 0; at < 900; at++) add('single', 1);
  for (let at = 0; at < 900; at++) add('batch', 128);
  const spent: Record<string, number> = { single: 0, batch: 0 };
  for (let at = 0; at < 600; at++) {
    const job = turns.next()!;
    spent[job.tenant]! += job.cost;
  }
  assert.ok(Math.abs(spent['single']! - spent['batch']!) <= 128 + 16, JSON.stringify(spent));
});

test('a tenant holds at most as many places as are still free, so another always finds one', () => {
  const turns = new FairTurns<number>(512);
  let held = 0;
  while (turns.add('flood', held, 1)) held++;
  assert.equal(held, 256);
  let second = 0;
  while (turns.add('second', second, 1)) second++;
  assert.equal(second, 128);
  assert.ok(turns.add('third', 0, 1));
  assert.equal(turns.add('flood', 0, 1), false);
});

test('nothing is lost, nothing is served twice, and the counts are right', () => {
  const step = fc.record({
    tenant: fc.constantFrom('a', 'b', 'c'),
    cost: fc.integer({ min: 1, max: 200 }),
    take: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const turns = new FairTurns<number>(32);
      const inside = new Map<string, number[]>([
        ['a', []],
        ['b', []],
        ['c', []],
      ]);
      const owner = new Map<number, string>();
      steps.forEach(({ tenant, cost, take }, item) => {
        if (take) {
          const served = turns.next();
          if (served !== undefined) assert.equal(inside.get(owner.get(served)!)!.shift(), served);
          else assert.equal(turns.waiting, 0);
        } else if (turns.add(tenant, item, cost)) {
          inside.get(tenant)!.push(item);
          owner.set(item, tenant);
        }
        const all = [...inside.values()].reduce((sum, items) => sum + items.length, 0);
        assert.equal(turns.waiting, all);
        assert.ok(all <= 32);
        assert.equal(turns.waitingOf(tenant), inside.get(tenant)!.length);
      });
    }),
  );
});
