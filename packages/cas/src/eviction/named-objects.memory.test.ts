/** A name takes no more memory than it is charged for, and a removal looks at 100 000 names in a short turn. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Address } from '@ron/proto';
import { NAME_BYTES, NamedObjects } from './named-objects.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}

/** Strings that share no memory with others, as those of a request. */
const textOf = (text: string): string => Buffer.from(text).toString('latin1');

for (const count of [10_000, 100_000]) {
  test(`${count} names`, (t) => {
    const empty_bytes = usedBytes();
    const named = new NamedObjects({ chunk_bytes: 65_536, unnamed_bytes_max: 0 });
    for (let at = 0; at < count; at++) {
      const address = textOf(`b3:${String(at).padStart(64, '0')}`) as Address;
      named.set(textOf(`live/tiles.example.org/layers/streets/14/8712/${at}.png`), named.claim(address, 10_240), 704);
    }
    const each_bytes = (usedBytes() - empty_bytes) / count;
    assert.equal(named.size, count);
    assert.ok(each_bytes <= NAME_BYTES && each_bytes > NAME_BYTES / 2, `${each_bytes} bytes for a name`);
    const begun_ms = performance.now();
    const matching = [...named.names()].filter((name) => name.startsWith('live/other.example.org/'));
    const look_ms = performance.now() - begun_ms;
    assert.equal(matching.length, 0);
    t.diagnostic(`${each_bytes.toFixed(0)} bytes for a name; ${look_ms.toFixed(1)} ms to look at all of them`);
  });
}
