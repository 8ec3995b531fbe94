/**
 * Hit ratios of eviction policies and of the real cache: `node packages/cache/test/policies.bench.ts`.
 *
 * The scanned keys are requested once each and are not counted: the ratios are those of the other requests.
 */
import { Cache } from '@ron/cache';
import { Lru, S3Fifo, Segmented, Sieve, TinyLfu, type Policy } from './policies.ts';
import { traceOf } from './trace.ts';

const KEYS = 100_000;
const REQUESTS = 1_000_000;
const SCANS = { none: { scan_keys: 0 }, scan: { scan_keys: 20_000 }, loop: { scan_keys: 20_000, isLoop: true } };

class RealCache implements Policy {
  readonly #cache: Cache<true>;
  constructor(capacity: number) {
    this.#cache = new Cache({ entries_max: capacity });
  }
  request(key: number): boolean {
    const name = `key ${key}`;
    if (this.#cache.get(name) === true) return true;
    this.#cache.set(name, true, 0);
    return false;
  }
}

const POLICIES: Readonly<Record<string, (capacity: number) => Policy>> = {
  LRU: (capacity) => new Lru(capacity),
  segmented: (capacity) => new Segmented(capacity),
  SIEVE: (capacity) => new Sieve(capacity),
  'W-TinyLFU': (capacity) => new TinyLfu(capacity),
  'S3-FIFO, 2 uses': (capacity) => new S3Fifo(capacity, 2),
  'S3-FIFO, 1 use': (capacity) => new S3Fifo(capacity, 1),
  '@ron/cache': (capacity) => new RealCache(capacity),
};

function hitRatio(trace: Int32Array, policy: Policy): number {
  let [hits, requests] = [0, 0];
  for (const key of trace) {
    const isHit = policy.request(key);
    if (key >= KEYS) continue;
    requests += 1;
    hits += Number(isHit);
  }
  return hits / requests;
}

for (const skew of [0.8, 1]) {
  for (const [name, scans] of Object.entries(SCANS)) {
    const trace = traceOf({ requests: REQUESTS, keys: KEYS, skew, scan_every: 50_000, ...scans });
    for (const capacity of [2000, 10_000]) {
      const ratios = Object.entries(POLICIES).map(
        ([policy, make]) => `${policy} ${(100 * hitRatio(trace, make(capacity))).toFixed(1)} %`,
      );
      console.log(`zipf ${skew}, ${name}, ${capacity} of ${KEYS}: ${ratios.join(', ')}`);
    }
  }
}
