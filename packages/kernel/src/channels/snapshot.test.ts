import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Snapshot } from './snapshot.ts';

test('load gives the value of the last swap; values loaded before stay unchanged', () => {
  const first = { rate: 1, burst: 1 };
  const config = new Snapshot('config', first);
  const loaded = config.load();
  assert.equal(config.version, 0);
  assert.equal(config.swap({ rate: 2, burst: 2 }), first, 'swap returns the replaced value');
  assert.deepEqual(loaded, { rate: 1, burst: 1 });
  assert.deepEqual(config.load(), { rate: 2, burst: 2 });
  assert.equal(config.version, 1);
});

test('every swap is one version, and each value comes out exactly once', () => {
  fc.assert(
    fc.property(fc.array(fc.integer()), (values) => {
      const config = new Snapshot('config', -1);
      const replaced = values.map((value) => config.swap(value));
      assert.deepEqual([...replaced, config.load()], [-1, ...values]);
      assert.equal(config.version, values.length);
    }),
  );
});
