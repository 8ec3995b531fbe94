/**
 * CPU time of one operation of the cache, beside a plain map: `node packages/cache/test/cache.bench.ts`.
 *
 * Rounds of the sides alternate; figures are medians with the lowest and the highest round.
 */
import { Cache } from '@ron/cache';

const ENTRIES = 10_000;
const OPERATIONS = 500_000;
const ROUNDS = 9;
const names = Array.from({ length: OPERATIONS }, (_, index) => `key ${index}`);
/** Steps through the entries so that neighbours in time are not neighbours in memory. */
const nameAt = (at: number): string => names[(at * 7919) % ENTRIES]!;

const map = new Map<string, number>();
const counted = new Cache<number>({ entries_max: ENTRIES });
const living = new Cache<number>({ entries_max: ENTRIES });
for (const name of names.slice(0, ENTRIES)) {
  map.set(name, 1);
  counted.set(name, 1, 0);
  living.set(name, 1, 0, { ttl_ms: 3_600_000 });
}

let found = 0;
const SIDES: Readonly<Record<string, () => void>> = {
  'Map get': () => {
    for (let at = 0; at < OPERATIONS; at++) found += map.get(nameAt(at))!;
  },
  'get, no lifetime': () => {
    for (let at = 0; at < OPERATIONS; at++) found += counted.get(nameAt(at))!;
  },
  'get, with a lifetime': () => {
    for (let at = 0; at < OPERATIONS; at++) found += living.get(nameAt(at))!;
  },
  'set that evicts, bound by entries': () => {
    const cache = new Cache<number>({ entries_max: ENTRIES });
    for (const name of names) cache.set(name, 1, 0);
  },
  'set that evicts, bound by bytes, with a lifetime': () => {
    const cache = new Cache<number>({ bytes_max: ENTRIES * 200 });
    for (const name of names) cache.set(name, 1, 8, { ttl_ms: 3_600_000 });
  },
};

const rounds = new Map<string, number[]>(Object.keys(SIDES).map((name) => [name, []]));
for (let round = 0; round < ROUNDS + 2; round++) {
  for (const [name, run] of Object.entries(SIDES)) {
    const before = process.threadCpuUsage();
    run();
    const { user, system } = process.threadCpuUsage(before);
    // The first two warm up.
    if (round >= 2) rounds.get(name)!.push(((user + system) * 1000) / OPERATIONS);
  }
}
for (const [name, times] of rounds) {
  const [low, middle, high] = times
    .toSorted((a, b) => a - b)
    .filter((_, at) => at === 0 || at === (ROUNDS - 1) / 2 || at === ROUNDS - 1);
  console.log(`${name}: ${middle!.toFixed(0)} ns, ${low!.toFixed(0)} .. ${high!.toFixed(0)}`);
}
console.log(`${found} found`);
