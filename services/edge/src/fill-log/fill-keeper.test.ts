import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, Mpsc, NEVER, RonError } from '@ron/kernel';
import { eventually, tempDirFor } from '@ron/testkit';
import type { KeepOutcome } from '../cache/asset-cache.ts';
import type { AssetMeta, Provenance } from '../cache/cached-asset.ts';
import type { FilledAsset } from '../fill/fills.ts';
import { FillKeeper, type FillKeeperInit, type KeepResult } from './fill-keeper.ts';
import { openTestLog, provenanceOf } from './testing.ts';

const settled: string[] = [];
const discarded: string[] = [];

function filled(name: string, more: { provenance?: Provenance | undefined; generation?: number } = {}): FilledAsset {
  const { generation = 0, provenance = provenanceOf(name) } = { ...more };
  const isObject = 'provenance' in more && more.provenance === undefined;
  const { address, size, etag } = provenance;
  const key = isObject ? `o/${name}` : provenance.key;
  const meta: AssetMeta = {
    key,
    address,
    size,
    media_type: 'image/png',
    etag,
    freshness: undefined,
    provenance: isObject ? undefined : provenance,
    log_index: undefined,
  };
  const source = { size, etag: '"x"', media_type: 'image/png', ram: [], read: () => assert.fail('not read') };
  return {
    meta,
    body: { address, size, source, isOnDisk: true, discard: () => void discarded.push(key) },
    generation,
    settled: () => void settled.push(key),
  };
}

interface Rig {
  readonly fills: Mpsc<FilledAsset>;
  readonly keeper: FillKeeper;
  readonly kept: AssetMeta[];
  readonly counts: Map<KeepResult, number>;
}

function rig(log: FillKeeperInit['log'], keep?: (meta: AssetMeta) => Promise<KeepOutcome>): Rig {
  const fills = new Mpsc<FilledAsset>('fills', 1024);
  const kept: AssetMeta[] = [];
  const counts = new Map<KeepResult, number>();
  const keeper = new FillKeeper({
    fills,
    log,
    cache: {
      keep: async (meta) => {
        const outcome = (await keep?.(meta)) ?? 'kept';
        if (outcome === 'kept') kept.push(meta);
        return outcome;
      },
    },
    deadline: () => Deadline.after('fill_log', 5000),
    count: (result, count) => void counts.set(result, (counts.get(result) ?? 0) + count),
  });
  return { fills, keeper, kept, counts };
}

/** Processes the fills in the channel and ends. */
async function drained({ keeper }: Pick<Rig, 'keeper'>): Promise<void> {
  await keeper[Symbol.asyncDispose]();
}

test('an asset is kept after its entry, with its index; an object without an entry', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  const sizes: number[] = [];
  const one = rig(log, async () => {
    sizes.push(log.size);
    return 'kept';
  });
  one.fills.trySend(filled('a'));
  one.fills.trySend(filled('b3:00', { provenance: undefined }));
  one.fills.trySend(filled('b'));
  await drained(one);
  const indexes = Object.fromEntries(one.kept.map(({ key, log_index }) => [key, log_index]));
  assert.deepEqual(indexes, {
    'live/tiles.example.org/a': 0,
    'live/tiles.example.org/b': 1,
    'o/b3:00': undefined,
  });
  assert.deepEqual(sizes, [2, 2, 2], 'both entries were durable before the first note');
  assert.equal(one.counts.get('kept'), 3);
});

test('of several fills of a key the last is kept, and all are logged', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  const one = rig(log);
  for (const etag of ['"1"', '"2"', '"3"']) {
    one.fills.trySend(filled('a', { provenance: provenanceOf('a', { etag }) }));
  }
  await drained(one);
  assert.deepEqual(
    one.kept.map(({ etag, log_index }) => [etag, log_index]),
    [['"3"', 2]],
  );
  assert.equal(one.counts.get('superseded'), 2);
});

test('without an entry nothing is kept', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  settled.length = 0;
  discarded.length = 0;
  let isBroken = true;
  const one = rig({
    append: async (entries, signal) => {
      if (isBroken) throw new RonError('storage_full', 'the disk is full');
      return await log.append(entries, signal);
    },
    isWorkPending: false,
    work: () => undefined,
  });
  one.fills.trySend(filled('a'));
  one.fills.trySend(filled('b3:00', { provenance: undefined }));
  const stop = new AbortController();
  const running = one.keeper.run(stop.signal);
  await eventually('the batch was processed', () => one.kept.length === 1);
  assert.equal(one.counts.get('failed'), 1);
  isBroken = false;
  one.fills.trySend(filled('c'));
  await eventually('the next fill is kept', () => one.kept.length === 2);
  stop.abort();
  await assert.rejects(running);
  assert.deepEqual(settled.splice(0).length, 3, 'each fill is settled once, kept or not');
  assert.deepEqual(discarded, ['live/tiles.example.org/a']);
  assert.deepEqual(one.kept[1]!.key, 'live/tiles.example.org/c');
});

test('purged fills, fills without a place and failed notes are counted, and later fills are kept', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  const one = rig(log, async ({ key }) => {
    if (key.endsWith('/late')) throw new RonError('timeout', 'the note took too long');
    if (key.endsWith('/large')) return 'not_stored';
    return key.endsWith('/old') ? 'purged' : 'kept';
  });
  for (const name of ['old', 'late', 'large', 'new']) one.fills.trySend(filled(name));
  await drained(one);
  assert.deepEqual(Object.fromEntries(one.counts), { purged: 1, failed: 2, kept: 1 });
});

test('the task signs a checkpoint a second after an entry, without another fill', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  const one = rig(log);
  const stop = new AbortController();
  const running = one.keeper.run(stop.signal);
  for (const name of ['a', 'b']) {
    one.fills.trySend(filled(name));
    await eventually(`${name} is kept`, () => one.kept.some(({ key }) => key.endsWith(name)));
  }
  await eventually('all entries are signed', () => log.unsigned === 0);
  stop.abort();
  await assert.rejects(running);
  await drained(one);
});

test('a stopped task leaves the fills in the channel for the close', async (t) => {
  const { log } = await openTestLog(tempDirFor(t));
  await using _ = log;
  const one = rig(log);
  await assert.rejects(one.keeper.run(AbortSignal.abort()));
  one.fills.trySend(filled('a'));
  await drained(one);
  assert.equal(one.kept.length, 1);
  assert.equal(one.fills.trySend(filled('b')), 'closed');
  await one.keeper.run(NEVER);
});
