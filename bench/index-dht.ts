/**
 * Lookups in a simulated DHT of 200 nodes, under a virtual clock. `node bench/index-dht.ts [--quick]`
 *
 * Bars: p99 of the hops at most 5. In 1 % of the lookups all first requests stall for 2 s: all are answered within 400 ms, for
 * at most 5 % more requests. Round trips are log-normal (p50 20 ms, p99 64 ms). Each repeat has another seed; a run without
 * hedging has the same lookups and faults. A request that is not answered is given up after 500 ms in both.
 */
import {
  quantile,
  simulate,
  type SimulationInit,
  type SimulationResult,
} from '../services/index/src/dht/testing/simulation.ts';
import { measure, quick, report, type Case } from './lib.ts';

const NODES = 200;
const LOOKUPS = quick ? 500 : 3000;
const REPEATS = quick ? 1 : 3;

const SCENARIOS = {
  calm: {},
  'stalled first requests in 1 %': { stalled: 0.01 },
  '5 % slow requests, 10 % of the nodes away': { stragglers: 0.05, away: 0.1 },
  'no peer has it': { isProvided: false },
} as const satisfies Record<string, Partial<SimulationInit>>;
type Scenario = keyof typeof SCENARIOS;

interface Run {
  readonly plain: SimulationResult;
  readonly hedged: SimulationResult;
}

async function runsOf(scenario: Scenario): Promise<Run[]> {
  const runs: Run[] = [];
  for (let seed = 1; seed <= REPEATS; seed++) {
    const init = { nodes: NODES, lookups: LOOKUPS, seed, ...SCENARIOS[scenario] };
    const plain = await simulate({ ...init, isHedged: false });
    runs.push({ plain, hedged: await simulate({ ...init, isHedged: true }) });
  }
  return runs;
}

/** A case of figures that exist already: `measure` calls it once more than there are repeats, to warm up. */
function caseOf<R>(runs: readonly R[], init: Omit<Case, 'run'>, figure: (run: R) => number): Case {
  let calls = -1;
  return { ...init, run: () => figure(runs[Math.max(calls++, 0)]!) };
}

function casesOf(scenario: Scenario, runs: readonly Run[], calm: readonly Run[]): Case[] {
  const isBar = scenario.startsWith('stalled');
  const pairs = runs.map((run, at) => ({ ...run, calm: calm[at]!.hedged }));
  const add = (name: string, unit: string, figure: (run: (typeof pairs)[number]) => number, bar?: number): Case =>
    caseOf(pairs, { name: `${scenario}: ${name}`, unit, ...(bar !== undefined && { bar }) }, figure);
  return [
    add('hops p50', 'hops', ({ hedged }) => quantile(hedged.hops, 0.5)),
    add('hops p99', 'hops', ({ hedged }) => quantile(hedged.hops, 0.99), 5.01),
    add('p50', 'ms', ({ hedged }) => quantile(hedged.took_ms, 0.5)),
    add('p99 without hedging', 'ms', ({ plain }) => quantile(plain.took_ms, 0.99)),
    add('p99', 'ms', ({ hedged }) => quantile(hedged.took_ms, 0.99)),
    add('slowest without hedging', 'ms', ({ plain }) => plain.took_ms.at(-1)!),
    add('slowest', 'ms', ({ hedged }) => hedged.took_ms.at(-1)!, isBar ? 400 : undefined),
    add('requests of a lookup', 'requests', ({ hedged }) => hedged.requests / hedged.lookups),
    add(
      'requests, compared with calm',
      'x',
      ({ hedged, calm: base }) => hedged.requests / base.requests,
      isBar ? 1.05 : undefined,
    ),
    add('hedges, as a share of the requests', '%', ({ hedged }) => (100 * hedged.hedges) / hedged.requests),
    add('not found', 'lookups', ({ hedged }) => (scenario === 'no peer has it' ? 0 : hedged.lookups - hedged.found)),
  ];
}

const calm = await runsOf('calm');
const cases = casesOf('calm', calm, calm);
for (const scenario of Object.keys(SCENARIOS) as Scenario[]) {
  if (scenario !== 'calm') cases.push(...casesOf(scenario, await runsOf(scenario), calm));
}
report('index-dht', `lookups in a DHT of ${NODES} nodes`, await measure(cases, REPEATS));
