/** Names are loaded in the order of time, all of them, and no turn of the event loop is long. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import type { Held } from '../volume/volume.ts';
import { loadNames, type LoadNamesInit } from './load-names.ts';

const address = formatAddress(new Uint8Array(32));

/** Notes whose payload is their id: a number. */
function volumeOf(times: readonly number[]): LoadNamesInit['volume'] {
  const idOf = (at: number): Buffer => {
    const id = Buffer.alloc(32);
    id.writeUInt32BE(at);
    return id;
  };
  return {
    inventory: async (kind, after, count) => {
      const first = after === undefined ? 0 : Buffer.from(after).readUInt32BE() + 1;
      const last = kind === 'note' ? Math.min(times.length, first + count) : first;
      return Array.from({ length: last - first }, (_, at): Held => ({
        id: idOf(first + at),
        type: 0,
        put_s: times[first + at]!,
        payload_bytes: 0,
      }));
    },
    get: async (_kind, id) => ({ type: 0, id, put_s: 0, meta: id, payload: id }),
  };
}

async function load(times: readonly number[]): Promise<number[]> {
  const found: number[] = [];
  const parse = (note: Uint8Array) => ({ name: `${Buffer.from(note).readUInt32BE()}`, address, size: 1 });
  const init = { volume: volumeOf(times), parse, signal: NEVER };
  await loadNames(
    init,
    ({ name }) => found.push(Number(name)),
    () => assert.fail('there is no object'),
  );
  return found;
}

test('the oldest come first, and those of the same second stay in order', async () => {
  const times = [2 ** 32 - 1, 5, 0, 2 ** 31, 5, 2 ** 11, 2 ** 22, 2 ** 11 - 1, 0];
  assert.deepEqual(await load(times), [2, 8, 1, 4, 7, 5, 6, 3, 0]);
});

test('300 000 names are all loaded, without a long turn of the event loop', async (t) => {
  const times = Array.from({ length: 300_000 }, (_, at) => 1_700_000_000 + ((at * 7919) % 864_000));
  const used_ms = (): number => process.threadCpuUsage().user / 1000;
  let [isLoading, last_ms, longest_ms] = [true, used_ms(), 0];
  const turn = (): void => {
    const now_ms = used_ms();
    longest_ms = Math.max(longest_ms, now_ms - last_ms);
    last_ms = now_ms;
    if (isLoading) setImmediate(turn);
  };
  setImmediate(turn);
  const found = await load(times);
  isLoading = false;
  assert.equal(new Set(found).size, times.length);
  assert.ok(found.every((each, at) => at === 0 || times[each]! >= times[found[at - 1]!]!));
  t.diagnostic(`the longest turn took ${longest_ms.toFixed(1)} ms`);
  assert.ok(longest_ms < 60, `${longest_ms} ms`);
});
