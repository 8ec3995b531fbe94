import assert from 'node:assert/strict';
import { test } from 'node:test';
import { quantile, simulate, type SimulationInit } from './testing/simulation.ts';

/** `bench/index-dht.ts` runs the same with 200 nodes. */
const SIZE = { nodes: 30, lookups: 600 };
const STALLS: SimulationInit = { ...SIZE, isHedged: true, stalled: 0.01 };

test('stalls of all first requests: hedging answers all lookups within 400 ms for at most 5 % more requests', async (t) => {
  const calm = await simulate({ ...SIZE, isHedged: true });
  const plain = await simulate({ ...STALLS, isHedged: false });
  const hedged = await simulate(STALLS);
  t.diagnostic(
    `requests: ${calm.requests} calm, ${plain.requests} plain, ${hedged.requests} hedged (${hedged.hedges})`,
  );
  t.diagnostic(`slowest: ${plain.took_ms.at(-1)!.toFixed(0)} ms plain, ${hedged.took_ms.at(-1)!.toFixed(0)} ms hedged`);
  assert.equal(hedged.found, SIZE.lookups);
  assert.ok(hedged.took_ms.at(-1)! <= 400, 'a lookup took more than 400 ms');
  assert.ok(hedged.requests <= 1.05 * calm.requests, 'hedges cost more than 5 %');
  assert.ok(plain.took_ms.at(-1)! > 400, 'the stalls do no harm: the comparison shows nothing');
  assert.ok(quantile(hedged.hops, 0.99) <= 5);
});

test('nodes that leave and return, and slow requests, do not fail a lookup', async () => {
  const churn = await simulate({ ...SIZE, lookups: 300, isHedged: true, away: 0.1, stragglers: 0.02 });
  assert.equal(churn.found, 300);
  assert.ok(quantile(churn.took_ms, 0.99) <= 400);
  assert.ok(quantile(churn.hops, 0.99) <= 5);
});
