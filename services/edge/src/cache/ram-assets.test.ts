/** Tiles of a retired mount and assets without freshness are not given, and an asset that is too large is not kept. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FastEntry } from '@ron/ingress';
import { VirtualSched } from '@ron/kernel/testing';
import { formatAddress } from '@ron/proto';
import { prepareAsset } from '../assets/fetched-answer.ts';
import type { RamAsset } from './asset-cache.ts';
import { RamAssets } from './ram-assets.ts';

const assetOf = (owner: RamAsset['owner']): RamAsset => ({ entry: {} as FastEntry, meta: undefined, owner });

test('a tile is given until its mount is retired', () => {
  for (const call of ['get', 'find'] as const) {
    const ram = new RamAssets(100_000);
    const mount = { isRetired: false };
    ram.set('pack/a/0/0/0.png', assetOf(mount), 1000, {});
    assert.ok(ram[call]('pack/a/0/0/0.png') !== undefined && ram.has('pack/a/0/0/0.png'));
    mount.isRetired = true;
    assert.equal(ram[call]('pack/a/0/0/0.png'), undefined);
    assert.ok(!ram.has('pack/a/0/0/0.png'), 'it is removed when it is met');
  }
});

test('fresh, stale and negative entries are distinguished', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const ram = new RamAssets(100_000);
    const asset = assetOf(undefined);
    ram.set('fresh', asset, 10, { ttl_ms: 60_000, stale_ms: Infinity });
    ram.set('stale', asset, 10, { ttl_ms: 1000, stale_ms: Infinity });
    ram.setNegative('absent', 60_000);
    await clock.advance(2000);
    assert.deepEqual(ram.find('fresh'), { asset, isNegative: false, isFresh: true });
    assert.deepEqual(ram.find('stale'), { asset, isNegative: false, isFresh: false });
    assert.equal(ram.get('stale'), undefined);
    assert.equal(ram.find('absent')?.isNegative, true);
    assert.equal(ram.get('absent'), undefined);
    assert.equal(ram.set('large', asset, 50_000, {}), false, 'too large to keep');
  });
});

test('an asset that its origin must confirm is never given as fresh, wherever in a millisecond it was kept', async () => {
  const clock = new VirtualSched(1000.5);
  await clock.during(() => {
    const ram = new RamAssets(100_000);
    const response_ms = clock.wall_ms() - 86_400_000;
    for (const cache_control of ['no-cache', 's-maxage=0', 'max-age=1']) {
      for (let step = 0; step < 10; step++) {
        clock.advanceSync(0.1);
        const { asset, bytes, lifetime } = prepareAsset(
          {
            key: 'live/a.example/b.png',
            address: formatAddress(new Uint8Array(32)),
            size: 1,
            media_type: 'image/png',
            etag: '"1"',
            freshness: {
              cache_control,
              expires: undefined,
              date: undefined,
              last_modified: undefined,
              age_s: 0,
              request_ms: response_ms,
              response_ms,
            },
            provenance: undefined,
            log_index: undefined,
          },
          Buffer.from('x'),
          { stale_while_revalidate: 0, stale_if_error: 0 },
        );
        ram.set('live/a.example/b.png', asset, bytes, lifetime);
        assert.equal(ram.get('live/a.example/b.png'), undefined, cache_control);
        assert.equal(ram.find('live/a.example/b.png')?.isFresh, false);
      }
    }
  });
});
