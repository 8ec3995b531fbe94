/** Which errors of a fill are answered with a stale asset, within stale-if-error. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, RonError, type ErrorCode } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { AssetCache } from '../cache/asset-cache.ts';
import type { AssetMeta, CachedAsset } from '../cache/cached-asset.ts';
import type { EdgeConfig } from '../config.ts';
import { DiskReads } from './disk-reads.ts';
import { FetchedAssets } from './fetched-assets.ts';
import type { HitTotals } from './hit-totals.ts';

const meta = {
  key: 'live/a.example/b',
  address: 'b3:00' as Address,
  size: 0,
  media_type: 'image/png',
  etag: '"1"',
  freshness: {
    cache_control: 'max-age=0',
    expires: undefined,
    date: undefined,
    last_modified: undefined,
    age_s: 0,
    request_ms: Date.now(),
    response_ms: Date.now(),
  },
  provenance: undefined,
  log_index: undefined,
} satisfies AssetMeta;
const source = { size: 0, media_type: 'image/png', ram: [], read: async function* () {} };
const stale: CachedAsset = { meta, source, tier: 'cas' };

/** The code of the refusal; `stale` if the stale asset is answered. */
async function answerAfter(code: ErrorCode): Promise<string> {
  const fetched = new FetchedAssets({
    cache: {
      generation: 0,
      ram: { find: () => undefined },
      find: () => Promise.resolve(stale),
    } as unknown as AssetCache,
    fills: { fill: () => Promise.reject(new RonError(code, 'failed')), refresh: () => undefined },
    reads: new DiskReads(1),
    current: {
      value: {
        edge: { mode: 'live' },
        fill: { stale_while_revalidate: 0, stale_if_error: 60_000 },
      } as EdgeConfig,
    },
    hits: { count: () => undefined } as unknown as HitTotals,
  });
  const missing = { kind: 'live', key: meta.key, origin: 'https://a.example', url: 'https://a.example/b' } as const;
  const request = {
    headers: {},
    deadline: Deadline.unlimited('test', {}),
    ip: '',
    park: <T>(run: () => T): T => run(),
  };
  try {
    return (await fetched.answer(missing, request)) && 'stale';
  } catch (error) {
    assert.ok(isRonError(error));
    return error.code;
  }
}

for (const code of ['bad_gateway', 'timeout', 'breaker_open', 'not_ready'] as const)
  test(`${code} is answered with the stale asset`, async () => assert.equal(await answerAfter(code), 'stale'));

for (const code of ['draining', 'busy', 'reject_policy', 'payload_too_large'] as const)
  test(`${code} is answered with ${code}`, async () => assert.equal(await answerAfter(code), code));
