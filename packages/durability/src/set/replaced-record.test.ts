/** A record that replaces an object's record reaches every volume that holds one, also those that are being copied to. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryVolume, ObjectStore, type Volume } from '@ron/cas';
import { NEVER, RonError, isRonError } from '@ron/kernel';
import { addressBytes, type Address } from '@ron/proto';
import { faulty, type Faulty } from '../testing/faulty-volume.ts';
import { VolumeSet } from './volume-set.ts';

const BYTES = Buffer.from('an object');

interface Opened {
  readonly set: VolumeSet;
  readonly store: ObjectStore;
  readonly volumes: readonly Faulty[];
}

async function open(count: number): Promise<Opened> {
  const volumes = Array.from({ length: count }, (_, index) =>
    faulty(new MemoryVolume({ name: `v${index}`, bytes_max: 1 << 20 })),
  );
  const members = volumes.map(({ volume }) => ({ volume }));
  const set = await VolumeSet.open({ members, replication_factor: 2, write_min: 1, signal: NEVER });
  return { set, store: new ObjectStore({ volume: set }), volumes };
}

const put = async ({ store }: Opened, media_type?: string): Promise<Address> =>
  (await store.put(BYTES, { media_type }, NEVER)).address;

async function typeOn(volume: Volume, address: Address): Promise<string | undefined> {
  const record = await volume.get('object', addressBytes(address), NEVER);
  return record && Buffer.from(record.meta).toString();
}

const typesOf = async ({ volumes }: Opened, address: Address): Promise<(string | undefined)[]> =>
  await Promise.all(volumes.map(({ volume }) => typeOn(volume, address)));

test('a copy beyond the target gets it too', async () => {
  const opened = await open(4);
  const address = await put(opened, 'a/a');
  for (const member of opened.set.members) {
    if (!member.holds('object', addressBytes(address))) {
      assert.ok(await opened.set.copyObject(addressBytes(address), member, NEVER));
    }
  }
  await put(opened, 'b/b');
  assert.deepEqual(await typesOf(opened, address), ['b/b', 'b/b', 'b/b', 'b/b']);
  await put(opened);
  assert.deepEqual(await typesOf(opened, address), ['b/b', 'b/b', 'b/b', 'b/b']);
});

test('a holder that fails to take it no longer counts and is read last', async () => {
  for (const failing of [0, 1]) {
    const opened = await open(2);
    const address = await put(opened, 'a/a');
    opened.volumes[failing]!.fail('put', () => new RonError('not_ready', 'the disk is read-only'));
    await put(opened, 'b/b');
    assert.deepEqual(await typesOf(opened, address), failing === 0 ? ['a/a', 'b/b'] : ['b/b', 'a/a']);
    assert.equal(opened.set.members[failing]!.isCurrent, false);
    assert.equal((await new ObjectStore({ volume: opened.set }).open(address, NEVER))?.media_type, 'b/b');
  }
});

test('nothing is written while a holder is full', async () => {
  const opened = await open(2);
  const address = await put(opened, 'a/a');
  opened.volumes[0]!.fail('put', () => new RonError('storage_full', 'no room'));
  await opened.store.put(Buffer.from('another'), {}, NEVER);
  await assert.rejects(put(opened, 'b/b'), (error) => isRonError(error, 'storage_full'));
  assert.deepEqual(await typesOf(opened, address), ['a/a', 'a/a']);
});

test('copies that disagree are put right by the next writer that states a type', async () => {
  const opened = await open(2);
  const address = await put(opened, 'a/a');
  const { volume } = opened.volumes[0]!;
  const record = (await volume.get('object', addressBytes(address), NEVER))!;
  await volume.put([{ ...record, id: addressBytes(address), meta: Buffer.from('x/x') }], NEVER);
  await put(opened, 'a/a');
  assert.deepEqual(await typesOf(opened, address), ['a/a', 'a/a']);
});

test('a copy that is being made while the record is replaced ends up with the new one', async () => {
  const opened = await open(3);
  const address = await put(opened, 'a/a');
  const id = addressBytes(address);
  const target = opened.set.members.find((member) => !member.holds('object', id))!;
  const write = target.volume.put.bind(target.volume);
  const held = Promise.withResolvers<void>();
  let isHeld = true;
  target.volume.put = async (...args) => {
    if (isHeld && args[0].some((each) => Buffer.compare(each.id, id) === 0)) await held.promise;
    await write(...args);
  };
  const copying = opened.set.copyObject(id, target, NEVER);
  await new Promise((resolve) => setImmediate(resolve));
  await put(opened, 'b/b');
  isHeld = false;
  held.resolve();
  assert.ok(await copying);
  assert.deepEqual(await typesOf(opened, address), ['b/b', 'b/b', 'b/b']);
});
