import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildGraph } from '@ron/pages/graph';

test('no module of the client depends on Node when it is resolved for browsers', () => {
  const root = new URL('../../../', import.meta.url);
  const entries = { client: new URL('../src/index.ts', import.meta.url).href };
  // An import of a part of Node would be refused here.
  const { files } = buildGraph({ root: root.pathname, entries, files: {} });
  assert.ok(Object.keys(files).length > 15, 'the walk found the modules');
  assert.ok('packages/simd/src/simd-baseline.wasm' in files);
  assert.ok(!('packages/simd/src/wasm-from-file.ts' in files));
});
