import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import fc from 'fast-check';
import { installSched, realSched } from '@ron/kernel';
import { fuzzRuns } from '@ron/testkit';
import { corrIdFrom, newCorrId } from './corr-id.ts';

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;
const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const timeOf = (id: string): number =>
  id
    .slice(0, 10)
    .split('')
    .reduce((sum, c) => sum * 32 + ALPHABET.indexOf(c), 0);

afterEach(() => void installSched(realSched));

test('ids are ULIDs of the current time, unique and strictly ascending', () => {
  const from_ms = Date.now();
  const ids = Array.from({ length: 50_000 }, newCorrId);
  const to_ms = Date.now();
  for (const id of ids) assert.match(id, ULID);
  for (let i = 1; i < ids.length; i += 1) assert.ok(ids[i - 1]! < ids[i]!, `${ids[i - 1]} !< ${ids[i]}`);
  assert.ok(timeOf(ids[0]!) >= from_ms && timeOf(ids.at(-1)!) <= to_ms);
});

test('ids ascend even if the clock stops or goes back', () => {
  let wall_ms = Date.now() + 5000;
  installSched({ ...realSched, wall_ms: () => wall_ms });
  const first = newCorrId();
  const still = newCorrId();
  wall_ms -= 60_000;
  const back = newCorrId();
  wall_ms += 120_000;
  const forward = newCorrId();
  assert.deepEqual([forward, back, first, still].toSorted(), [first, still, back, forward]);
  assert.equal(timeOf(forward), wall_ms);
  assert.equal(timeOf(back), timeOf(first));
});

test('an exhausted counter carries, and takes the next millisecond instead of repeating an id', () => {
  let base_ms = Date.now() + 1_000_000;
  // All random bits set is the highest start: the second id must carry into the time.
  installSched({ ...realSched, wall_ms: () => base_ms, randomBytes: (n) => new Uint8Array(n).fill(255) });
  // A few hundred milliseconds consume the rest of the pool.
  for (let tries = 0; !newCorrId().endsWith('Z'.repeat(16)); base_ms += 1) assert.ok((tries += 1) < 1000);
  const carried = newCorrId();
  assert.equal(timeOf(carried), base_ms + 1);
  // A full low half within one millisecond must carry into the high half.
  const later_ms = base_ms + 1000;
  installSched({ ...realSched, wall_ms: () => later_ms });
  let previous = carried;
  for (let i = 0; i < 2 ** 20 + 5; i += 1) {
    const id = newCorrId();
    if (previous >= id) assert.fail(`${previous} >= ${id}`);
    previous = id;
  }
  assert.ok(timeOf(previous) >= later_ms);
});

test('a safe id is echoed, any other is replaced', () => {
  for (const id of ['a', 'A-b_9', '0'.repeat(64)]) assert.equal(corrIdFrom(id), id);
  for (const id of ['', '0'.repeat(65), 'a b', 'a\n', 'a\r\nx: y', 'é', 'a,b', '<script>', '\0', undefined])
    assert.match(corrIdFrom(id), ULID);
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 80 }), (text) => {
      const id = corrIdFrom(text);
      assert.ok(id === text ? /^[0-9A-Za-z_-]{1,64}$/.test(text) : ULID.test(id));
    }),
    fuzzRuns(1000),
  );
});
