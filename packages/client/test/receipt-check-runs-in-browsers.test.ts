import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildGraph } from '@ron/pages/graph';

test('the check of webhook receipts depends on no part of Node when it is resolved for browsers', () => {
  const root = new URL('../../../', import.meta.url);
  const entries = { check: new URL('../src/webhook-receipt/index.ts', import.meta.url).href };
  // An import of a part of Node would be refused here.
  const { files } = buildGraph({ root: root.pathname, entries, files: {} });
  assert.ok('packages/client/src/webhook-receipt/check-receipt.ts' in files);
  assert.ok('packages/simd/src/simd-baseline.wasm' in files);
  assert.ok(!('packages/simd/src/wasm-from-file.ts' in files));
});
