/** 404 is answered when absence is certain: while directories are away that may hold an object, it is 503 and names them. */
import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, MIB } from '@ron/testkit';
import { addressOf, assertRefusal, type Json } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

const DIRS = ['d0', 'd1', 'd2', 'd3'];
const FLAGS = [
  '--durability.replication_factor=2',
  '--durability.repair_interval=1h',
  '--storage.cache_bytes=1MiB',
  '--storage.fast_path=false',
];
const STRANGER = `/o/${addressOf(Buffer.from('never stored'))}`;

async function move(service: TestService, names: readonly string[], to: 'away' | 'back'): Promise<void> {
  for (const name of names) {
    const [here, away] = [join(service.dir, name), join(service.dir, `${name}.away`)];
    await (to === 'away' ? rename(here, away) : rename(away, here));
  }
  const lost = to === 'away' ? names.length : 0;
  await eventually('it is noticed', async () => {
    const { volumes } = await service.ask('GET', '/admin/volumes');
    return volumes.filter((each: Json) => each.life === 'lost').length === lost;
  });
}

async function assertEverywhere(service: TestService, path: string, status: number, code: string): Promise<void> {
  const headers = await service.allow();
  const requests = [
    ['GET', path],
    ['GET', `${path}/manifest`],
    ['PUT', `${path}/pin`],
    ['DELETE', `${path}/pin`],
  ] as const;
  for (const [method, target] of requests) assertRefusal(await service.send(method, target, { headers }), status, code);
  const head = await service.send('HEAD', path);
  assert.deepEqual([head.status, head.headers['retry-after'] !== undefined], [status, status === 503]);
}

test('with fewer directories away than copies are acknowledged, absence is certain', async () => {
  await using service = await startService({ dirs: DIRS, flags: FLAGS });
  await assertEverywhere(service, STRANGER, 404, 'not_found');
  await move(service, ['d1'], 'away');
  await assertEverywhere(service, STRANGER, 404, 'not_found');
});

test('with more away it is 503 with their names, until they are back, are given up, or the operator accepts it', async () => {
  await using service = await startService({ dirs: DIRS, flags: FLAGS });
  await move(service, ['d1', 'd3'], 'away');
  await assertEverywhere(service, STRANGER, 503, 'not_ready');
  const { text } = await service.send('GET', STRANGER);
  for (const name of ['d1', 'd3']) assert.ok(text.includes(join(service.dir, name)), text);
  await service.reload(DIRS, [...FLAGS, '--durability.degraded=true']);
  await assertEverywhere(service, STRANGER, 404, 'not_found');
  await service.reload(DIRS, FLAGS);
  await assertEverywhere(service, STRANGER, 503, 'not_ready');
  await move(service, ['d1', 'd3'], 'back');
  await assertEverywhere(service, STRANGER, 404, 'not_found');
  const lose = (name: string): Promise<Json> =>
    service.ask('POST', `/admin/volumes/lose?volume=${encodeURIComponent(join(service.dir, name))}`);
  await lose('d0');
  await assertEverywhere(service, STRANGER, 404, 'not_found');
  // One was given up: an object may have had its copies there and on the one that is away.
  await rename(join(service.dir, 'd1'), join(service.dir, 'd1.away'));
  await eventually('it is noticed', async () => (await service.send('GET', STRANGER)).status === 503);
  await lose('d1');
  await assertEverywhere(service, STRANGER, 404, 'not_found');
});

test('a known object with chunks on directories that are away is 503; integrity only when all have answered', async () => {
  await using service = await startService({ dirs: DIRS, flags: FLAGS });
  const bytes = bytesOf(6 * MIB, 3);
  const path = `/o/${await service.put(bytes)}`;
  const pairs = DIRS.flatMap((one, index) => DIRS.slice(index + 1).map((other) => [one, other] as const));
  for (const pair of pairs) {
    await move(service, pair, 'away');
    // Repair may have made copies of all of it before: then it is served.
    const reply = await service.send('GET', path).catch(() => undefined);
    assert.ok(reply === undefined || reply.status === 200 || reply.problem?.code === 'not_ready', reply?.text ?? '');
    await move(service, pair, 'back');
  }
  const whole = await service.send('GET', path);
  assert.ok(whole.status === 200 && whole.body.equals(bytes));
});
