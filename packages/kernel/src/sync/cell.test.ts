import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as settle } from 'node:timers/promises';
import fc from 'fast-check';
import { Cell } from './cell.ts';

/** A callback as untyped code would pass it: the types refuse it, so the runtime has to. */
const untyped = (use: () => unknown): (() => number) => use as () => number;

test('withSync runs the callback on the state and returns its result', () => {
  const cell = new Cell('nonces', 1, { seen: 0 });
  assert.equal(
    cell.withSync((state) => ++state.seen),
    1,
  );
  assert.equal(
    cell.withSync((state) => state.seen),
    1,
  );
});

test('a callback that returns a promise or another thenable is refused', async () => {
  const unhandled: unknown[] = [];
  const onUnhandled = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', onUnhandled);
  const cell = new Cell('nonces', 1, {});
  const callable = Object.assign(() => {}, { then: () => {} });
  for (const result of [Promise.resolve(1), Promise.reject(new Error('late')), { then: () => {} }, callable]) {
    // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1]
    assert.throws(() => cell.withSync(untyped(() => result)), /cell nonces returned a promise/);
  }
  for (const result of [null, undefined, 0, '', { then: 1 }, () => 1]) {
    assert.equal(cell.withSync(untyped(() => result)), result);
  }
  await settle();
  process.off('unhandledRejection', onUnhandled);
  assert.deepEqual(unhandled, []);
});

test('a cell cannot be entered while it is held', () => {
  const cell = new Cell('nonces', 1, {});
  const inner = new Cell('audit', 2, {});
  assert.throws(() => cell.withSync(() => cell.withSync(() => 1)), /nonces is entered while it is held/);
  assert.throws(() => cell.withSync(() => inner.withSync(() => cell.withSync(() => 1))), /nonces is entered/);
});

test('cells nest in ascending rank only', () => {
  const [low, same, high] = [new Cell('low', 1, {}), new Cell('same', 1, {}), new Cell('high', 2, {})];
  assert.equal(
    low.withSync(() => high.withSync(() => 'both')),
    'both',
  );
  assert.throws(() => high.withSync(() => low.withSync(() => 1)), /low \(rank 1\) is taken while high \(rank 2\)/);
  assert.throws(() => low.withSync(() => same.withSync(() => 1)), /ranks must ascend/);
  assert.equal(high.withSync(() => 1) + low.withSync(() => 1), 2, 'one after the other in any order');
});

test('a callback that throws leaves the cell, and those around it, free', () => {
  const [low, high] = [new Cell('low', 1, {}), new Cell('high', 2, {})];
  const boom = (): never => {
    throw new Error('boom');
  };
  assert.throws(() => low.withSync(() => high.withSync(boom)), /boom/);
  assert.throws(() => high.withSync(() => low.withSync(() => 1)), /ascend/);
  assert.throws(() => low.withSync(untyped(() => Promise.resolve())), /promise/);
  assert.equal(
    low.withSync(() => high.withSync(() => 'free')),
    'free',
  );
  assert.equal(
    low.withSync(() => {
      assert.throws(() => high.withSync(boom), /boom/);
      return high.withSync(() => 'inner is free while outer is held');
    }),
    'inner is free while outer is held',
  );
});

test('a rank is a number', () => {
  assert.throws(() => new Cell('nonces', Number.NaN, {}), /rank/);
});

test('any nesting is refused exactly where a rank does not ascend', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 1, maxLength: 6 }), (ranks) => {
      const cells = [0, 1, 2, 3, 4, 5].map((rank) => new Cell(`cell${rank}`, rank, {}));
      let depth = 0;
      const nest = (rest: readonly number[]): number => {
        const [rank, ...deeper] = rest;
        if (rank === undefined) return depth;
        return (cells[rank] as Cell<object>).withSync(() => {
          depth += 1;
          return nest(deeper);
        });
      };
      const ascending = ranks.findIndex((rank, at) => at > 0 && rank <= (ranks[at - 1] as number));
      if (ascending === -1) assert.equal(nest(ranks), ranks.length);
      else assert.throws(() => nest(ranks), /assertion failed/);
      assert.equal(depth, ascending === -1 ? ranks.length : ascending);
      assert.equal(
        cells[0]?.withSync(() => true),
        true,
        'nothing stays held',
      );
    }),
  );
});
