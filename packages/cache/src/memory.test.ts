/** The charged bytes are the memory that the entries really take, within 20 %. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Cache } from './cache.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** A string of `chars` characters that shares no memory with others. */
const textOf = (chars: number, seed: number): string => Buffer.alloc(chars, `${seed} `).toString('latin1');

const CASES = [
  {
    name: 'small values under short keys',
    entries: 60_000,
    key: (at: number) => textOf(16, at),
    chars: 32,
    ttl: false,
  },
  {
    name: 'addresses as keys, with a lifetime',
    entries: 40_000,
    key: (at: number) => `b3:${textOf(64, at)}`,
    chars: 200,
    ttl: true,
  },
  { name: 'values of 2 KiB', entries: 10_000, key: (at: number) => textOf(32, at), chars: 2048, ttl: false },
] as const;

for (const { name, entries, key, chars, ttl } of CASES) {
  test(name, (t) => {
    const empty_bytes = usedBytes();
    const cache = new Cache<string>({ bytes_max: 2 ** 30 });
    for (let at = 0; at < entries; at++) {
      // A key made by concatenation is flattened by the map; the header of the value string is part of its size.
      cache.set(key(at), textOf(chars, at), chars + 16, ttl ? { ttl_ms: 1e6, stale_ms: 1e6 } : undefined);
    }
    const real_bytes = usedBytes() - empty_bytes;
    assert.equal(cache.size, entries);
    const ratio = cache.bytes / real_bytes;
    assert.ok(ratio > 0.8 && ratio < 1.2, `charged ${cache.bytes}, real ${real_bytes}: ${ratio.toFixed(2)}`);
    t.diagnostic(`charged / real: ${ratio.toFixed(2)}`);
    cache.clear();
  });
}
