import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { installSched, realSched } from '../sched.ts';
import { FairEntry, FairQueue } from './fair-queue.ts';

const QUANTUM = 400;

class Item extends FairEntry {
  readonly key: string;
  readonly number: number;
  constructor(key: string, cost = 40, number = 0) {
    super(cost);
    this.key = key;
    this.number = number;
  }
}

const newQueue = (capacity: number, keys_max = 64): FairQueue<Item> =>
  new FairQueue({ capacity, keys_max, quantum: QUANTUM });

/** As an owner with the share rule adds; false: refused. */
function add(queue: FairQueue<Item>, ...items: Item[]): boolean {
  if (!queue.admits(items[0]!.key, items.length)) return false;
  for (const item of items) queue.push(item.key, item);
  return true;
}

const keysServed = (queue: FairQueue<Item>, count: number): string[] =>
  Array.from({ length: count }, () => queue.next()!.key);

test('one key alone is served in order', () => {
  const queue = newQueue(100);
  for (let number = 0; number < 40; number++) assert.ok(add(queue, new Item('acme', 40, number)));
  const served = Array.from({ length: 40 }, () => queue.next()?.number);
  assert.deepEqual(served, [...served.keys()]);
  assert.equal(queue.next(), undefined);
});

test('a flood does not delay another key: its entries are served within a turn', () => {
  const queue = newQueue(512);
  for (let at = 0; at < 250; at++) add(queue, new Item('flood'));
  for (let at = 0; at < 8; at++) add(queue, new Item('zoo'));
  const served = keysServed(queue, 2 * (QUANTUM / 40));
  assert.equal(served.filter((key) => key === 'zoo').length, 8);
});

test('keys get equal shares of the cost, even if entries differ in cost', () => {
  const queue = newQueue(3000);
  for (let at = 0; at < 900; at++) add(queue, new Item('single', 40));
  for (let at = 0; at < 900; at++) add(queue, new Item('batch', 7200));
  const spent: Record<string, number> = { single: 0, batch: 0 };
  for (let at = 0; at < 600; at++) {
    const { key, cost } = queue.next()!;
    spent[key]! += cost;
  }
  assert.ok(Math.abs(spent['single']! - spent['batch']!) <= 7200 + QUANTUM, JSON.stringify(spent));
});

test('with entries of one quantum each, keys strictly alternate, and a new key waits for one turn of each other', () => {
  const queue = newQueue(100);
  for (let at = 0; at < 4; at++) for (const key of ['a', 'b']) queue.push(key, new Item(key, QUANTUM));
  assert.deepEqual(keysServed(queue, 3), ['a', 'b', 'a']);
  queue.push('new', new Item('new', QUANTUM));
  assert.deepEqual(keysServed(queue, 6), ['b', 'new', 'a', 'b', 'a', 'b']);
});

test('a key that ran empty begins anew: credit is not saved for later', () => {
  const queue = newQueue(200);
  for (let at = 0; at < 5; at++) {
    queue.push('a', new Item('a'));
    queue.next();
  }
  for (let at = 0; at < 60; at++) for (const key of ['a', 'b']) queue.push(key, new Item(key));
  const served = keysServed(queue, 2 * (QUANTUM / 40));
  assert.equal(served.filter((key) => key === 'b').length, QUANTUM / 40);
});

test('removing the last entry of the key whose turn it is passes the turn on', () => {
  const queue = newQueue(100);
  const [a, b, c] = ['a', 'b', 'c'].map((key) => new Item(key, QUANTUM));
  for (const item of [a!, b!, c!]) queue.push(item.key, item);
  assert.equal(queue.peek(), a);
  queue.remove(a!);
  assert.equal(queue.peek(), b);
  queue.remove(c!);
  assert.deepEqual(keysServed(queue, 1), ['b']);
  assert.equal(queue.peek(), undefined);
});

test('the newest end of each key can be served, still in turns', () => {
  const queue = newQueue(100);
  for (let number = 0; number < 3; number++) {
    for (const key of ['a', 'b']) queue.push(key, new Item(key, QUANTUM, number));
  }
  const served = Array.from({ length: 4 }, () => {
    const item = queue.peek('newest')!;
    queue.take(item);
    return `${item.key}${item.number}`;
  });
  assert.deepEqual(served, ['a2', 'b2', 'a1', 'b1']);
  assert.equal(queue.oldest!.key, 'a');
});

test('a key holds at most as many places as are still free, so another key always finds room', () => {
  const queue = newQueue(512);
  const fill = (key: string): number => {
    let held = 0;
    while (add(queue, new Item(key))) held++;
    return held;
  };
  assert.equal(fill('flood'), 256);
  assert.equal(fill('second'), 128);
  assert.ok(add(queue, new Item('third')));
  assert.equal(add(queue, new Item('flood')), false);
});

test('entries that are added together leave room for another key', () => {
  const queue = newQueue(64);
  const request = (): Item[] => Array.from({ length: queue.together_max }, () => new Item('batch'));
  let requests = 0;
  while (add(queue, ...request())) requests++;
  assert.equal(queue.size, requests * queue.together_max);
  assert.ok(requests >= 1);
  assert.ok(add(queue, new Item('zoo')));
});

test('an entry is displaced only from a key with at least two more than the key that needs room', () => {
  const queue = newQueue(100);
  for (let number = 0; number < 3; number++) queue.push('long', new Item('long', 1, number));
  queue.push('short', new Item('short'));
  assert.equal(queue.displaceable('new')!.number, 2, 'the newest of the longest');
  assert.equal(queue.displaceable('short')!.key, 'long');
  assert.equal(queue.displaceable('long'), undefined);
  queue.push('short', new Item('short'));
  assert.equal(queue.displaceable('short'), undefined, 'two against three: nothing would be gained');
});

test('several entries are displaced only if longer keys can give up so many places', () => {
  const queue = newQueue(100);
  for (const [key, count] of Object.entries({ long: 6, middle: 5, short: 1 })) {
    for (let number = 0; number < count; number++) queue.push(key, new Item(key, 1, number));
  }
  assert.equal(queue.displaceable('new', 3)!.key, 'long', 'three places of the long key and two of the middle one');
  assert.equal(queue.displaceable('new', 4), undefined, 'two places and one are too few for four');
  assert.equal(queue.displaceable('new', 4, 3)!.key, 'long');
});

test('an entry of any cost is served in few steps, in the turn that the rounds one by one would give it', () => {
  const queue = new FairQueue<Item>({ capacity: 8, keys_max: 4, quantum: 1 });
  for (const cost of [1e15, 3e15]) queue.push('dear', new Item('dear', cost));
  queue.push('other', new Item('other', 2e15));
  const costs = Array.from({ length: 3 }, () => queue.next()!.cost);
  assert.deepEqual(costs, [1e15, 2e15, 3e15]);
  for (const cost of [Number.NaN, Infinity, -1]) assert.throws(() => new Item('bad', cost), /cost/);
});

test('property: the order of service is that of deficit round robin, one round after the other', () => {
  const item = fc.record({ key: fc.constantFrom('a', 'b', 'c'), cost: fc.integer({ min: 0, max: 50 * QUANTUM }) });
  fc.assert(
    fc.property(fc.array(item, { minLength: 1, maxLength: 40 }), (items) => {
      const queue = newQueue(64);
      const ring: { key: string; credit: number; left: Item[] }[] = [];
      for (const [number, { key, cost }] of items.entries()) {
        const entry = new Item(key, cost, number);
        queue.push(key, entry);
        const known = ring.find((each) => each.key === key);
        if (known === undefined) ring.push({ key, credit: 0, left: [entry] });
        else known.left.push(entry);
      }
      const expected: number[] = [];
      while (ring.length > 0) {
        const turn = ring.shift()!;
        turn.credit += QUANTUM;
        for (; turn.left.length > 0 && turn.left[0]!.cost <= turn.credit; turn.left.shift()) {
          turn.credit -= turn.left[0]!.cost;
          expected.push(turn.left[0]!.number);
        }
        if (turn.left.length > 0) ring.push(turn);
      }
      assert.deepEqual(
        items.map(() => queue.next()!.number),
        expected,
      );
    }),
  );
});

test('the cost before an entry of a key: its own, and no more of each other key', () => {
  const queue = newQueue(64);
  for (let at = 0; at < 10; at++) add(queue, new Item('flood', 1000));
  add(queue, new Item('zoo', 300));
  assert.equal(queue.costBefore('zoo', 100), 400 + 400);
  assert.equal(queue.costBefore('new', 100), 100 + 100 + 100);
  assert.equal(queue.costBefore('flood', 1000), 11_000 + 300);
});

test('more keys than buckets share them: all are served, none is lost, and memory stays bounded', () => {
  const queue = newQueue(5000, 8);
  for (let at = 0; at < 1000; at++) for (let each = 0; each < 3; each++) queue.push(`key ${at}`, new Item(`key ${at}`));
  assert.equal(queue.size, 3000);
  const served = new Map<string, number>();
  for (const key of keysServed(queue, 3000)) served.set(key, (served.get(key) ?? 0) + 1);
  assert.equal(served.size, 1000);
  assert.ok([...served.values()].every((count) => count === 3));
});

test('with as many keys as half the buckets, nearly every key has a bucket of its own', (t) => {
  let sharing = 0;
  for (let seed = 0; seed < 50; seed++) {
    const randomBytes = (): Uint8Array<ArrayBuffer> => new Uint8Array([seed, seed * 7, seed * 31, seed * 101]);
    const previous = installSched({ ...realSched, randomBytes });
    t.after(() => installSched(previous));
    const queue = newQueue(1000, 64);
    for (let at = 0; at < 32; at++) queue.push(`key ${at}`, new Item(`key ${at}`));
    for (let at = 0; at < 32; at++) if (queue.sizeOf(`key ${at}`) !== 1) sharing += 1;
    installSched(previous);
  }
  t.diagnostic(`${sharing} of ${50 * 32} keys share a bucket`);
  assert.ok(sharing < 0.05 * 50 * 32, `${sharing} of ${50 * 32} keys share a bucket`);
});

test('property: nothing is lost or served twice, keys keep their order, and the counts are right', () => {
  const step = fc.record({
    key: fc.constantFrom('a', 'b', 'c'),
    costs: fc.array(fc.integer({ min: 1, max: 20_000 }), { minLength: 1, maxLength: 8 }),
    action: fc.constantFrom('add', 'take', 'remove'),
    which: fc.nat(40),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const queue = newQueue(32);
      const inside: Record<string, Item[]> = { a: [], b: [], c: [] };
      let number = 0;
      for (const { key, costs, action, which } of steps) {
        const before = Object.values(inside).flat();
        if (action === 'take') {
          const served = queue.next();
          if (served === undefined) assert.equal(queue.size, 0);
          else assert.equal(inside[served.key]!.shift(), served);
        } else if (action === 'remove' && before.length > 0) {
          const removed = before[which % before.length]!;
          queue.remove(removed);
          inside[removed.key] = inside[removed.key]!.filter((item) => item !== removed);
        } else {
          const items = costs.map((cost) => new Item(key, cost, number++));
          if (add(queue, ...items)) inside[key]!.push(...items);
        }
        const all = Object.values(inside).flat();
        assert.equal(queue.size, all.length);
        assert.equal(
          queue.cost,
          all.reduce((sum, { cost }) => sum + cost, 0),
        );
        assert.ok(all.length <= 32);
        assert.equal(queue.sizeOf(key), inside[key]!.length);
        assert.equal(queue.oldest, all.toSorted((left, right) => left.number - right.number)[0]);
        assert.deepEqual(new Set(queue.entries()), new Set(all));
      }
    }),
  );
});
