/**
 * Model of coalescing: two callers of one key, on the real fills. The explorer decides when they come and leave, and when and how
 * the fetch ends.
 *
 * A caller that stays gets the outcome of a fetch that it could join: the asset, or the error of the leader. No two fetches of
 * the key run at once. A fetch goes on when all callers have left, and its asset is offered to the cache. An asset that
 * must not be stored is given to one caller only, and never offered.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Deadline, isRonError, RonError, touch } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { AssetMeta } from '../cache/cached-asset.ts';
import type { CoalescedFills } from './coalesced-fills.ts';
import type { Fetched } from './fetched.ts';
import type { FilledAsset, Missing } from './fills.ts';

export interface FlightShape {
  readonly callers: number;
  /** So many of them leave, each at any moment. */
  readonly leavers: number;
  readonly outcome: 'stored' | 'unstored' | 'failed';
}

const KEY = 'o/b3:00';
const OUTLIVES_MS = 5000;

export function fillFlight(Class: typeof CoalescedFills, { callers, leavers, outcome }: FlightShape): Build {
  return (world) => {
    const seen = { fetched: 0, offered: 0, answered: 0 };
    /** By the signal of its deadline: one whose deadline has passed does not count. */
    const running = new Set<AbortSignal>();
    let fetches = 0;
    /** By address: how many callers got it. */
    const given = new Map<string, number>();
    const fills = new Class({
      // The queue has a model of its own.
      work: { submit: (_lane, deadline, work) => work(deadline), depth: 0, capacity: 1 },
      waiters: { wait: (begin) => begin(), onBusy: () => undefined },
      fills: {
        trySend: (filled: FilledAsset) => {
          touch(seen);
          seen.offered += 1;
          filled.settled();
          return 'ok';
        },
      },
      cache: { generation: 0, withdraw: () => undefined, ram: { setNegative: () => undefined } },
      requireFillable: () => undefined,
      fetch: async (_missing, _stale, { signal }) => {
        touch(seen);
        running.add(signal);
        const at = (fetches += 1);
        await world.io('fetch');
        touch(seen);
        running.delete(signal);
        signal.throwIfAborted();
        if (outcome === 'failed') throw new RonError('bad_gateway', 'failed');
        seen.fetched += 1;
        return fetchedOf(`b3:${at}`, outcome === 'stored');
      },
      isFresh: () => true,
      canKeep: () => true,
      negative_ttl_ms: () => 0,
      runs_max: 8,
      outlives_ms: OUTLIVES_MS,
    });
    for (let at = 0; at < callers; at += 1) {
      const leaving = new AbortController();
      world.task(`caller ${at}`, async () => {
        const deadline = Deadline.unlimited('request', { signal: leaving.signal });
        const answer = await fills.fill(missingOf(), undefined, deadline, '').then(
          ({ asset }) => asset!.meta.address,
          (error: unknown) => (isRonError(error) ? error.code : assert.fail(String(error))),
        );
        touch(seen);
        seen.answered += 1;
        if (answer === 'canceled') {
          assert.ok(leaving.signal.aborted, 'a caller was sent away with another');
          return;
        }
        if (answer === 'timeout') {
          assert.ok(world.now_ms() >= OUTLIVES_MS, 'a fetch was aborted too early');
          return;
        }
        assert.equal(answer.startsWith('b3:'), outcome !== 'failed', 'a caller gets the outcome of the fetch');
        given.set(answer, (given.get(answer) ?? 0) + 1);
      });
      if (at >= leavers) continue;
      world.task(`leaver ${at}`, async () => {
        leaving.abort(new RonError('canceled', 'the client left'));
      });
    }
    return {
      invariant: () => {
        const live = [...running].filter((signal) => !signal.aborted);
        assert.ok(live.length === running.size || world.now_ms() >= OUTLIVES_MS, 'a fetch was aborted too early');
        assert.ok(live.length <= 1 || outcome === 'unstored', 'two fetches of one key at once');
        for (const [address, count] of given)
          assert.ok(count === 1 || outcome !== 'unstored', `two callers got ${address}, which must not be stored`);
      },
      final: () => {
        // [edge I-5]
        assert.equal(seen.answered, callers, 'a caller still waits');
        assert.deepEqual([running.size, fills.size], [0, 0], 'a fetch is left');
        assert.equal(
          seen.offered,
          outcome === 'stored' ? seen.fetched : 0,
          'the cache gets each asset that it may store',
        );
      },
    };
  };
}

const missingOf = (): Missing => ({ kind: 'object', key: KEY });

function fetchedOf(address: string, isStorable: boolean): Fetched {
  const meta = { key: KEY, address: address as Address } as AssetMeta;
  const source = { size: 0, etag: '""', media_type: 'image/png', read: async function* () {} };
  const body = { address: meta.address, size: 0, source, isOnDisk: false, discard: () => undefined };
  return { kind: 'asset', how: 'fetched', meta, body, isStorable };
}
