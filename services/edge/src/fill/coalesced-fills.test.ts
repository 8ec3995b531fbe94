/** Purges, withdrawals and reloads while a fill is under way, or while its asset is on its way to the cache. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { AssetMeta } from '../cache/cached-asset.ts';
import { CoalescedFills } from './coalesced-fills.ts';
import type { Fetched } from './fetched.ts';
import type { FilledAsset, FillResult, Missing } from './fills.ts';

const MISSING: Missing = { kind: 'object', key: 'o/b3:00' };
const ABSENT: Fetched = { kind: 'absent', isKept: true };

class Bench {
  /** Fetches under way, in their order. */
  readonly fetches: PromiseWithResolvers<Fetched>[] = [];
  readonly sent: FilledAsset[] = [];
  readonly negative: string[] = [];
  withdrawn = 0;
  discarded = 0;
  readonly cache = {
    generation: 0,
    withdraw: () => void (this.withdrawn += 1),
    ram: { setNegative: (key: string) => void this.negative.push(key) },
  };
  isFresh = true;
  isAllowed = true;
  readonly fills: CoalescedFills;

  constructor() {
    this.fills = new CoalescedFills({
      work: { submit: (_lane, deadline, work) => work(deadline), depth: 0, capacity: 1 },
      waiters: { wait: (begin) => begin(), onBusy: () => undefined },
      fills: { trySend: (filled) => (this.sent.push(filled), 'ok') },
      cache: this.cache,
      requireFillable: () => {
        if (!this.isAllowed) throw new RonError('reject_policy', 'not allowed');
      },
      fetch: () => {
        const fetch = Promise.withResolvers<Fetched>();
        this.fetches.push(fetch);
        return fetch.promise;
      },
      isFresh: () => this.isFresh,
      canKeep: () => true,
      negative_ttl_ms: () => 1000,
      runs_max: 8,
      outlives_ms: 5000,
    });
  }

  ask(): Promise<FillResult> {
    const { fills } = this;
    // oxlint-disable-next-line no-array-fill-with-reference-type
    return fills.fill(MISSING, undefined, Deadline.unlimited('test', {}), '');
  }

  asset(isStorable = true): Fetched {
    const meta = { key: MISSING.key, address: 'b3:00' as Address } as AssetMeta;
    const source = { size: 0, etag: '""', media_type: 'image/png', read: async function* () {} };
    const discard = (): void => void (this.discarded += 1);
    const body = { address: meta.address, size: 0, source, isOnDisk: false, discard };
    return { kind: 'asset', how: 'fetched', meta, body, isStorable };
  }
}

test('an asset that was on its way to the cache before a purge is not given after it', async () => {
  const bench = new Bench();
  const first = bench.ask();
  bench.fetches[0]!.resolve(bench.asset());
  await first;
  assert.equal((await bench.ask()).isCollapsed, true, 'it is given until the cache has it');
  bench.cache.generation += 1;
  const second = bench.ask();
  assert.equal(bench.fetches.length, 2);
  bench.fetches[1]!.resolve(bench.asset());
  assert.equal((await second).isCollapsed, false);
});

test('an absence that was asked for before a purge is not remembered after it', async () => {
  const bench = new Bench();
  const waiting = bench.ask();
  bench.cache.generation += 1;
  bench.fetches[0]!.resolve(ABSENT);
  assert.equal((await waiting).asset, undefined);
  assert.deepEqual(bench.negative, []);
  const later = bench.ask();
  bench.fetches[1]!.resolve(ABSENT);
  await later;
  assert.deepEqual(bench.negative, [MISSING.key]);
});

test('an asset that a reload forbids while it is fetched is neither answered nor kept', async () => {
  const bench = new Bench();
  const waiting = bench.ask();
  bench.isAllowed = false;
  bench.fetches[0]!.resolve(bench.asset());
  await assert.rejects(waiting, /not allowed/);
  assert.deepEqual([bench.sent.length, bench.discarded], [0, 1]);
});

test('an asset on its way to the cache that its origin withdraws is removed once it has arrived', async () => {
  const bench = new Bench();
  bench.isFresh = false;
  const first = bench.ask();
  bench.fetches[0]!.resolve(bench.asset());
  await first;
  const second = bench.ask();
  bench.fetches[1]!.resolve(ABSENT);
  await second;
  assert.equal(bench.withdrawn, 1);
  bench.isFresh = true;
  const third = bench.ask();
  assert.equal(bench.fetches.length, 3, 'it is not given meanwhile');
  bench.sent[0]!.settled();
  assert.equal(bench.withdrawn, 2);
  bench.fetches[2]!.resolve(ABSENT);
  await third;
});

test('an asset that is fetched while its origin withdraws it is answered and not kept', async () => {
  const bench = new Bench();
  const leader = bench.ask();
  const follower = bench.ask();
  bench.fetches[0]!.resolve(bench.asset(false));
  await leader;
  // The follower fetches its own; a new caller starts a fill that others may join.
  await Promise.resolve();
  const later = bench.ask();
  assert.equal(bench.fetches.length, 3);
  bench.fetches[1]!.resolve(ABSENT);
  assert.equal((await follower).asset, undefined);
  bench.fetches[2]!.resolve(bench.asset());
  assert.equal((await later).isStored, false);
  assert.deepEqual([bench.sent.length, bench.discarded], [0, 1]);
});

test('of two callers that fetch their own, an asset of one does not outlive the absence of the other', async () => {
  const bench = new Bench();
  const waiting = [bench.ask(), bench.ask(), bench.ask()];
  bench.fetches[0]!.resolve(bench.asset(false));
  await waiting[0];
  await Promise.resolve();
  assert.equal(bench.fetches.length, 3);
  bench.fetches[1]!.resolve(ABSENT);
  await waiting[1];
  bench.fetches[2]!.resolve(bench.asset());
  assert.equal((await waiting[2]!).isStored, false);
  assert.deepEqual([bench.sent.length, bench.discarded], [0, 1]);
});
