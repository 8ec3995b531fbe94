/** Receipts and manifests state the measured durability of an object, not the configured one. */
import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB } from '@ron/testkit';
import { addressOf, type Json } from '@ron/testkit/service';
import { AMNESIA, startService, type TestService } from './support.ts';

const SMALL = bytesOf(3000, 1);
const LARGE = bytesOf(700 * KIB, 2);

async function stated(service: TestService, bytes: Buffer): Promise<Json> {
  return JSON.parse((await service.send('GET', `/o/${addressOf(bytes)}/manifest`)).text).durability;
}

async function receipt(service: TestService, bytes: Buffer): Promise<Json> {
  const headers = await service.allow();
  const reply = await service.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes, headers });
  return JSON.parse(reply.text).durability;
}

test('one volume, and memory alone', async () => {
  for (const [flags, fsynced] of [[[], true] as const, [AMNESIA, false] as const]) {
    await using service = await startService({ flags });
    for (const bytes of [SMALL, LARGE]) {
      const durability = { fsynced, copies: 1, target: 1 };
      assert.deepEqual(await receipt(service, bytes), durability);
      assert.deepEqual(await stated(service, bytes), durability);
    }
  }
});

test('several volumes: fewer copies while one is absent, and more once it returns', async () => {
  const flags = ['--durability.replication_factor=3', '--durability.write_min=1', '--durability.repair_interval=10m'];
  await using service = await startService({ dirs: ['a', 'b', 'c'], flags });
  for (const bytes of [SMALL, LARGE]) await service.put(bytes);
  const hasCopies = async (copies: number): Promise<boolean> => {
    const all = [await stated(service, SMALL), await stated(service, LARGE)];
    return all.every((each) => each.copies === copies && each.target === 3 && each.fsynced === true);
  };
  await eventually('all copies are counted', () => hasCopies(3));
  await rename(join(service.dir, 'b'), join(service.dir, 'away'));
  await eventually('the copies of the lost volume do not count', () => hasCopies(2));
  assert.deepEqual(await receipt(service, bytesOf(5000, 9)), { fsynced: true, copies: 2, target: 3 });
  await rename(join(service.dir, 'away'), join(service.dir, 'b'));
  await eventually('they count again', () => hasCopies(3));
});

test('the durability of an object is that of its chunk with the fewest copies', async () => {
  const flags = ['--durability.replication_factor=2', '--durability.repair_interval=10m'];
  await using service = await startService({ dirs: ['a', 'b'], flags });
  await service.put(LARGE);
  const { set } = service.storage.engine.volumes;
  const chunk = Buffer.from(addressOf(LARGE.subarray(5 * 64 * KIB, 6 * 64 * KIB)).slice(3), 'hex');
  const [first] = set.members;
  const { volume } = first!;
  const isDurable = volume.isDurable.bind(volume);
  volume.isDurable = (kind, id) => Buffer.compare(id, chunk) !== 0 && isDurable(kind, id);
  assert.deepEqual(await stated(service, LARGE), { fsynced: true, copies: 1, target: 2 });
});
