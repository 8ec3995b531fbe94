import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { lookupModel, type LookupModelInit } from './lookup.model.ts';
import { Lookup } from './lookup.ts';

const TWO: LookupModelInit = { peers: 2, alpha: 1, beta: 1, budget: 2 };
const THREE: LookupModelInit = { peers: 3, alpha: 1, beta: 1, budget: 1 };
const LEARNING: LookupModelInit = { peers: 3, alpha: 1, beta: 1, budget: 1, isLearning: true };
const LEAVING: LookupModelInit = { peers: 2, alpha: 1, beta: 1, budget: 1, isLeaving: true };

const STALLING: LookupModelInit = { peers: 2, alpha: 1, beta: 1, budget: 0, isStalling: true };

for (const model of [TWO, THREE, LEARNING, LEAVING, STALLING]) {
  test(`a lookup ends once, and cancels the losers: ${JSON.stringify(model)}`, async (t) => {
    const { schedules } = await assertHolds(lookupModel(Lookup, model));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'losers are not canceled',
    find: "this.#cancel.abort(new RonError('canceled', 'the lookup has ended', { op: HEDGE_OP }));",
    replace: '',
    model: TWO,
    caught: /a loser was not canceled/,
  },
  {
    bug: 'a hedge queries a peer that is under way',
    find: "candidate.state = 'querying';",
    replace: "candidate.state = wave === 'beta' ? 'querying' : 'waiting';",
    model: TWO,
    caught: /queried twice/,
  },
  {
    bug: 'the budget is ignored',
    find: '!budget.trySpend(HEDGE_OP)',
    replace: 'false',
    model: THREE,
    caught: /the budget was exceeded/,
  },
  {
    bug: 'the timer goes on after the end',
    find: 'this.#isEnded = true;\n    this.#timer?.cancel();',
    replace: '',
    model: LEAVING,
    caught: /after the end|livelock|a loser was not canceled/,
  },
  {
    bug: 'progress does not postpone the hedge',
    find: 'if (wait_ms > 0) return this.#setTimer(wait_ms);',
    replace: '',
    model: LEARNING,
    caught: /too early/,
  },
  {
    bug: 'the first failure ends the lookup',
    find: 'if (this.#running.size === 0) return true;',
    replace: 'if (this.#running.size === 0 || this.#failed > 0) return true;',
    model: TWO,
    caught: /could answer|left out/,
  },
  {
    bug: 'a lookup without a result does not wait for peers that stall',
    find: 'return !isWaiting;',
    replace: 'return true;',
    model: STALLING,
    caught: /could answer/,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Lookup: typeof Lookup }>(import.meta.resolve('./lookup.ts'), find, replace);
    await assertCaught(lookupModel(broken.Lookup, model), {}, caught);
  });
}
