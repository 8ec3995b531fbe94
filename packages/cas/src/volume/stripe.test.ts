import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { LocalVolume } from './local-volume.ts';
import { MemoryVolume } from './memory-volume.ts';
import { RecordType } from './record-types.ts';
import { decodeStripe, encodeStripe, isRetiredStripe, shardIdsOf, stripeId, type StripeLayout } from './stripe.ts';
import { legacyVolumeId } from './superblock.ts';
import type { NewRecord, Volume } from './volume.ts';

const { signal } = new AbortController();
const PLAIN = { noNullPrototype: true } as const;
const EMPTY = new Uint8Array(0);
const idOf = (text: string): Buffer => blake3(Buffer.from(text));

function layout(...names: string[]): StripeLayout {
  return {
    data_shards: 2,
    shards: names.map((name) => ({ id: idOf(name), bytes: name.length, home: legacyVolumeId(name) })),
  };
}

function recordOf(type: number, stripe: StripeLayout): NewRecord {
  return { type, id: stripeId(stripe.shards), payload: encodeStripe(stripe) };
}

test('a stripe is decoded as it was encoded, and other bytes are refused', () => {
  const shard = fc.record(
    {
      id: fc.uint8Array({ minLength: 32, maxLength: 32 }),
      bytes: fc.nat(),
      home: fc.uuid(),
    },
    PLAIN,
  );
  const shapes = fc.record(
    {
      data_shards: fc.integer({ min: 1, max: 3 }),
      shards: fc.array(shard, { minLength: 3 }),
    },
    PLAIN,
  );
  fc.assert(fc.property(shapes, (stripe) => assert.deepEqual(decodeStripe(encodeStripe(stripe)), stripe)));
  fc.assert(
    fc.property(shapes, fc.nat(), (stripe, cut) => {
      const bytes = encodeStripe(stripe);
      assert.equal(decodeStripe(bytes.subarray(0, cut % bytes.length)), undefined);
    }),
  );
  fc.assert(fc.property(fc.uint8Array(), (bytes) => void decodeStripe(bytes)));
});

test('a stripe of the previous version is read, with ids in place of the names of volumes', () => {
  const stripe = layout('a', 'b', 'c');
  const names = ['/mnt/a', 'd1', 'ü'];
  const parts: Uint8Array[] = [Buffer.from([2, 2, 1, 0])];
  for (const [index, { id, bytes }] of stripe.shards.entries()) {
    const name = Buffer.from(names[index]!, 'utf8');
    parts.push(id, Buffer.from([bytes, 0, 0, 0, name.length]), name);
  }
  const shards = stripe.shards.map((shard, index) => ({
    ...shard,
    id: Uint8Array.from(shard.id),
    home: legacyVolumeId(names[index]!),
  }));
  const former = Buffer.concat(parts);
  assert.deepEqual(decodeStripe(former), { data_shards: 2, shards, isNamed: true });
  for (let bytes = 0; bytes < former.length; bytes++) {
    assert.equal(decodeStripe(former.subarray(0, bytes)), undefined);
  }
});

test('a stripe of the retired code, or of a later version, protects nothing', () => {
  const bytes = encodeStripe(layout('a', 'b', 'c'));
  for (const form of [0, 1, 4, 255]) {
    bytes[0] = form;
    assert.equal(decodeStripe(bytes), undefined);
    assert.deepEqual(shardIdsOf(bytes), []);
    assert.equal(isRetiredStripe(bytes), form === 1);
  }
});

interface Opened extends AsyncDisposable {
  volume: Volume;
  /** Reopens the volume; `lose` deletes the index. */
  reopen(init?: { lose: boolean }): Promise<void>;
}

async function openLocal(): Promise<Opened> {
  const dir = await mkdtemp(join(tmpdir(), 'stripe-'));
  const opened: Opened = {
    volume: await LocalVolume.open({ dir, signal }),
    async reopen(init) {
      await opened.volume.close();
      if (init?.lose) await rm(join(dir, 'index'), { recursive: true });
      opened.volume = await LocalVolume.open({ dir, signal });
    },
    async [Symbol.asyncDispose]() {
      await opened.volume.close();
      await rm(dir, { recursive: true });
    },
  };
  return opened;
}

const inMemory = (): Promise<Opened> =>
  Promise.resolve({
    volume: new MemoryVolume({ bytes_max: 1e6 }),
    reopen: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  });

async function isFound(volume: Volume, stripe: StripeLayout): Promise<void> {
  const { id, payload } = recordOf(RecordType.stripe, stripe);
  assert.deepEqual(Buffer.from((await volume.get('stripe', id, signal))!.payload), payload);
  for (const shard of stripe.shards) {
    assert.deepEqual(Buffer.from((await volume.get('shard', shard.id, signal))!.payload), payload);
  }
}

async function isNotFound(volume: Volume, stripe: StripeLayout, ...shards: string[]): Promise<void> {
  assert.equal(await volume.get('stripe', stripeId(stripe.shards), signal), undefined);
  for (const shard of shards) assert.equal(await volume.get('shard', idOf(shard), signal), undefined);
}

for (const [name, open] of [
  ['a local volume', openLocal],
  ['a volume in memory', inMemory],
] as const) {
  suite(name, () => {
    test('finds a stripe by its id and by each shard, over restarts, until it has ended', async () => {
      await using opened = await open();
      const [first, second] = [layout('a', 'b', 'c'), layout('b', 'd', 'e')];
      await opened.volume.put([recordOf(RecordType.stripe, first)], signal);
      await isFound(opened.volume, first);
      await opened.reopen({ lose: true });
      await isFound(opened.volume, first);
      await opened.volume.put([recordOf(RecordType.unstripe, first)], signal);
      await opened.volume.put([recordOf(RecordType.stripe, second)], signal);
      for (const lose of [false, true]) {
        await isNotFound(opened.volume, first, 'a', 'c');
        await isFound(opened.volume, second);
        const listed = await opened.volume.inventory('stripe', undefined, 10);
        assert.deepEqual(
          listed.map((held) => Buffer.from(held.id)),
          [stripeId(second.shards)],
        );
        await opened.reopen({ lose });
      }
    });

    test('keeps the last note with an id', async () => {
      await using opened = await open();
      for (const text of ['one', 'two']) {
        await opened.volume.put([{ type: RecordType.note, id: idOf('n'), payload: Buffer.from(text) }], signal);
      }
      await opened.reopen({ lose: true });
      assert.equal(Buffer.from((await opened.volume.get('note', idOf('n'), signal))!.payload).toString(), 'two');
    });

    test('parity is content and verified by its hash', async () => {
      await using opened = await open();
      await opened.volume.put([{ type: RecordType.parity, id: idOf('p'), payload: Buffer.from('p') }], signal);
      const [held] = await opened.volume.inventory('content', undefined, 10);
      assert.equal(held?.type, RecordType.parity);
      assert.ok(await opened.volume.get('content', idOf('p'), signal));
    });
  });
}

test('stripes, their ends and notes move when their segment is compacted', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'stripe-'));
  const volume = await LocalVolume.open({ dir, signal });
  const [first, second] = [layout('a', 'b', 'c'), layout('b', 'd', 'e')];
  await volume.put([recordOf(RecordType.stripe, first)], signal);
  await volume.put([recordOf(RecordType.unstripe, first), recordOf(RecordType.stripe, second)], signal);
  await volume.put([{ type: RecordType.note, id: idOf('n'), payload: Buffer.from('note') }], signal);
  const init = { isNeeded: () => false, live_ratio: 1.1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal };
  assert.equal((await volume.reclaim(init)).segments, 1);
  for (const reopened of [volume, undefined]) {
    const current = reopened ?? (await LocalVolume.open({ dir, signal }));
    await isNotFound(current, first, 'a', 'c');
    await isFound(current, second);
    assert.ok(await current.get('note', idOf('n'), signal));
    await current.close();
    await rm(join(dir, 'index'), { recursive: true });
  }
  await rm(dir, { recursive: true });
});

test('a removed object is known as removed until it is put again', async () => {
  await using opened = await openLocal();
  const object = { type: RecordType.object, id: idOf('o'), payload: Buffer.from('o') };
  assert.ok(!opened.volume.wasRemoved(object.id));
  await opened.volume.put([object], signal);
  await opened.volume.put([{ type: RecordType.remove, id: object.id, payload: EMPTY }], signal);
  await opened.reopen({ lose: true });
  assert.ok(opened.volume.wasRemoved(object.id));
  await opened.volume.put([object], signal);
  assert.ok(!opened.volume.wasRemoved(object.id));
});
