import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '../sync/never.ts';
import { sched } from '../sched.ts';
import { TurnBudget } from './turn-budget.ts';

/** The turn in which each caller was served, by the order of the calls. */
async function turnsOf(budget: TurnBudget, units: readonly number[]): Promise<readonly number[]> {
  let turn = 0;
  const over = new AbortController();
  const counting = (async () => {
    for (; !over.signal.aborted; turn += 1) await sched.pause('test');
  })();
  const served = units.map(async (count) => {
    await budget.take(count, NEVER);
    return turn;
  });
  const turns = await Promise.all(served);
  over.abort();
  await counting;
  return turns.map((each) => each - turns[0]!);
}

test('a turn executes at most units_max units and the rest of the caller that exceeds them', async () => {
  const budget = new TurnBudget('test', { units_max: 4 });
  const turns = await turnsOf(budget, [1, 1, 5, 1, 3, 1, 9, 1]);
  assert.equal(turns[2], 0, 'three callers have room');
  const later = turns.slice(3).map((each) => each - turns[3]!);
  assert.deepEqual(later, [0, 0, later[2], later[2], later[4]]);
  assert.ok(turns[3]! > 0 && later[2]! > 0 && later[4]! > later[2]!, String(turns));
  assert.equal(budget.waiters, 0);
});

test('a new turn has the whole budget', async () => {
  const budget = new TurnBudget('test', { units_max: 1 });
  await budget.take(9, NEVER);
  await sched.pause('test');
  await sched.pause('test');
  assert.deepEqual(await turnsOf(budget, [1]), [0]);
});

test('an aborted waiter leaves with the reason and uses no units', async () => {
  const budget = new TurnBudget('test', { units_max: 1 });
  await budget.take(1, NEVER);
  const leaving = new AbortController();
  const left = budget.take(1, leaving.signal);
  const next = budget.take(1, NEVER);
  const reason = new Error('gone');
  leaving.abort(reason);
  await assert.rejects(left, reason);
  await assert.rejects(budget.take(1, leaving.signal), reason);
  assert.equal(budget.waiters, 1);
  await next;
});
