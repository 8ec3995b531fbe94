import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { CoalescedFills } from './coalesced-fills.ts';
import { fillFlight, type FlightShape } from './fill-flight.model.ts';

const SHAPES: readonly (readonly [promise: string, shape: FlightShape])[] = [
  ['a failed leader fails its followers', { callers: 2, leavers: 0, outcome: 'failed' }],
  ['all callers leave: the fetch ends and its asset is cached', { callers: 1, leavers: 1, outcome: 'stored' }],
  ['the leader leaves: its follower is answered', { callers: 2, leavers: 1, outcome: 'stored' }],
  ['an asset that must not be stored is for one caller', { callers: 2, leavers: 0, outcome: 'unstored' }],
];

for (const [promise, shape] of SHAPES)
  test(promise, async (t) => {
    const { schedules } = await assertHolds(fillFlight(CoalescedFills, shape));
    t.diagnostic(`${schedules} schedules`);
  });

const MUTANTS: readonly {
  readonly bug: string;
  readonly find: string;
  readonly replace: string;
  readonly shape: FlightShape;
  readonly caught: RegExp;
}[] = [
  {
    bug: 'followers share an asset that must not be stored',
    find: 'if (shared.outcome.isShared || shared.isLeader)',
    replace: 'if (shared !== undefined)',
    shape: { callers: 2, leavers: 0, outcome: 'unstored' },
    caught: /which must not be stored/,
  },
  {
    bug: 'an asset that must not be stored is offered to the cache',
    find: 'if (!isStorable) {',
    replace: 'if (false) {',
    shape: { callers: 1, leavers: 0, outcome: 'unstored' },
    caught: /the cache gets each asset that it may store/,
  },
  {
    bug: 'callers are not coalesced',
    find: 'await this.#flights.run(flight_key,',
    replace: 'await this.#flights.run(`${flight_key} ${++this.#unshared}`,',
    shape: { callers: 2, leavers: 0, outcome: 'stored' },
    caught: /two fetches of one key at once/,
  },
  {
    bug: 'a fetch ends with its last caller',
    find: '...(outlives_ms !== undefined && { outlives_ms })',
    replace: '',
    shape: { callers: 1, leavers: 1, outcome: 'stored' },
    caught: /a fetch was aborted too early/,
  },
];

for (const { bug, find, replace, shape, caught } of MUTANTS)
  test(`the model catches: ${bug}`, async () => {
    const module = import.meta.resolve('./coalesced-fills.ts');
    const broken = await mutant<{ CoalescedFills: typeof CoalescedFills }>(module, find, replace);
    await assertCaught(fillFlight(broken.CoalescedFills, shape), {}, caught);
  });
