/** The reads of an explanation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { DiskReads } from '../assets/disk-reads.ts';
import { explainAsset, type ExplainInit } from './explain-asset.ts';
import { namedAsset } from './named-asset.ts';

test('an explanation that needs the disk is refused if as many reads are in progress as allowed', async () => {
  const reads = new DiskReads(1);
  const { signal } = new AbortController();
  const cache: ExplainInit['cache'] = {
    ram: { peek: () => undefined },
    peek: () => Promise.reject(new Error('read beyond the limit')),
  };
  const current = { value: { edge: { storage_url: undefined } } } as unknown as ExplainInit['current'];
  const init = { reads, cache, current } as unknown as ExplainInit;
  const target = namedAsset(`o/b3:${'0'.repeat(64)}`, []);
  const { promise: freed, resolve: free } = Promise.withResolvers<void>();
  const busy = reads.run(signal, () => freed);
  await assert.rejects(explainAsset(init, target, signal), (error) => isRonError(error, 'busy'));
  free();
  await busy;
  reads.close();
});
