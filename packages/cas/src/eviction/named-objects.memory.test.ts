/** A name takes no more memory than it is charged for, however long it is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Address } from '@ron/proto';
import { nameBytes, NamedObjects } from './named-objects.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}

/** Strings that share no memory with others, as those of a request. */
const textOf = (text: string): string => Buffer.from(text).toString('latin1');

for (const [count, length] of [
  [10_000, 60],
  [100_000, 60],
  [10_000, 4000],
] as const) {
  test(`${count} names of ${length} characters`, (t) => {
    const empty_bytes = usedBytes();
    const named = new NamedObjects({ chunk_bytes: 65_536, unnamed_bytes_max: 0 });
    for (let at = 0; at < count; at++) {
      const address = textOf(`b3:${String(at).padStart(64, '0')}`) as Address;
      const name = textOf(`live/tiles.example.org/layers/streets/${at}.png`.padEnd(length, 'x'));
      named.set(name, named.claim(address, 10_240), 704, 0);
    }
    const each_bytes = (usedBytes() - empty_bytes) / count;
    assert.equal(named.size, count);
    const charged_bytes = named.names_bytes / count;
    assert.equal(charged_bytes, nameBytes('x'.repeat(length)));
    assert.ok(each_bytes <= charged_bytes && each_bytes > charged_bytes / 3, `${each_bytes} bytes for a name`);
    t.diagnostic(`${each_bytes.toFixed(0)} bytes for a name, ${charged_bytes} are charged`);
  });
}
