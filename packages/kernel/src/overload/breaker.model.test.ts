import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { probes, type BreakerClass, type ProbesInit } from './breaker.model.ts';
import { Breaker } from './breaker.ts';

const SIZES: Record<string, ProbesInit> = {
  'one probe': { half_open_probes: 1, trip_threshold: 0.5, callers: 3, cooldowns: 1, late: 0 },
  'two probes': { half_open_probes: 2, trip_threshold: 0.5, callers: 3, cooldowns: 1, late: 0 },
  'two phases': { half_open_probes: 1, trip_threshold: 0.5, callers: 2, cooldowns: 2, late: 0 },
  'late answers': { half_open_probes: 2, trip_threshold: 0.4, callers: 2, cooldowns: 1, late: 1 },
};

for (const [name, init] of Object.entries(SIZES)) {
  test(`half-open holds under every schedule: ${name}`, async (t) => {
    const { schedules, steps } = await assertHolds(probes(Breaker, init), { name });
    t.diagnostic(`${schedules} schedules, ${steps} steps`);
  });
}

const MUTANTS: Record<string, { find: string; replace: string; size: string; caught: RegExp }> = {
  'probes in flight are not counted': {
    find: 'this.#init.half_open_probes - this.#probes_out -',
    replace: 'this.#init.half_open_probes -',
    size: 'one probe',
    caught: /probes in flight/,
  },
  'a released probe is lost': {
    find: "this.#probes_out--;\n    if (verdict === 'none') return;",
    replace: "if (verdict === 'none') return;\n    this.#probes_out--;",
    size: 'two probes',
    caught: /leaked/,
  },
  'late answers count': {
    find: 'if (epoch !== this.#epoch) return;',
    replace: '',
    size: 'late answers',
    caught: /before the trip|leaked|probes in flight/,
  },
  'a decided phase stays half-open': {
    find: "this.#probes_bad > bad_max) this.#enter('open');",
    replace: 'this.#probes_bad > bad_max) return;',
    size: 'two probes',
    caught: /leaked/,
  },
  'looking consumes a probe': {
    find: 'get state(): BreakerState {\n    this.#update();',
    replace:
      "get state(): BreakerState {\n    this.#update();\n    if (this.#state === 'half_open') this.#probes_out++;",
    size: 'two probes',
    caught: /leaked|probes in flight/,
  },
};

for (const [name, { find, replace, size, caught }] of Object.entries(MUTANTS)) {
  test(`the model catches: ${name}`, async () => {
    const url = new URL('./breaker.ts', import.meta.url).href;
    const broken = await mutant<{ Breaker: BreakerClass }>(url, find, replace);
    await assertCaught(probes(broken.Breaker, SIZES[size]!), { name }, caught);
  });
}
