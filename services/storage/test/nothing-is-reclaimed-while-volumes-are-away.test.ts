/** Records that absent directories need on the others are kept, for any set of absent directories at any time. */
import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { CompactionPhase } from '@ron/cas';
import { bytesOf, eventually, MIB, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal, type Json } from '@ron/testkit/service';
import { assertServed, startService, type TestService } from './support.ts';

const DIRS = ['d0', 'd1', 'd2', 'd3'];
const PAIRS = DIRS.flatMap((one, index) => DIRS.slice(index + 1).map((other) => [one, other] as const));
const COMMON = [
  '--storage.segment_bytes=4MiB',
  '--storage.compact_live_ratio=0.95',
  '--storage.compact_pacing=4096MiB/s',
  '--storage.cache_bytes=1MiB',
  '--storage.fast_path=false',
  '--durability.repair_pacing=4096MiB/s',
];
const NO_PLANS = ['--durability.repair_interval=1h'];
const SHAPES = {
  copies: ['--durability.replication_factor=2'],
  stripes: [
    '--durability.replication_factor=2',
    '--durability.ec=true',
    '--durability.ec_data_shards=2',
    '--durability.ec_parity_shards=1',
  ],
} as const;
const { signal } = new AbortController();

async function task(service: TestService, kind: 'compact' | 'repair'): Promise<Json> {
  const { id } = await service.ask('POST', `/admin/${kind}`);
  let found: Json;
  await eventually(`the ${kind} ends`, async () => {
    found = await service.ask('GET', `/admin/tasks/${id}`);
    return found.state !== 'running';
  });
  return found;
}

async function fill(service: TestService, count = 2): Promise<Buffer[]> {
  const objects = Array.from({ length: count }, (_, index) => bytesOf(8 * MIB + index, index + 1));
  objects.push(...Array.from({ length: 6 }, (_, index) => bytesOf(4000, 100 + index)));
  for (const bytes of objects) await service.put(bytes);
  return objects;
}

const volumesOf = async (service: TestService): Promise<Json> => await service.ask('GET', '/admin/volumes');

async function move(base: string, names: readonly string[], to: 'away' | 'back'): Promise<void> {
  for (const name of names) {
    const [here, away] = [join(base, name), join(base, `${name}.away`)];
    await (to === 'away' ? rename(here, away) : rename(away, here));
  }
}

/** The service has noticed, and said so, that these are away. */
async function assertNamed(service: TestService, names: readonly string[]): Promise<void> {
  const { incomplete } = await volumesOf(service);
  const ready = JSON.parse((await service.send('GET', '/readyz')).text);
  assert.deepEqual(ready.degraded, ['durability']);
  const { reason } = ready.gates.find((each: Json) => each.gate === 'durability');
  for (const text of [incomplete, reason]) {
    for (const name of names) assert.ok(text.includes(`${join(service.dir, name)} is away`), text);
  }
  assert.match(reason, /compaction is paused/);
}

async function assertStopped(service: TestService, names: readonly string[]): Promise<void> {
  const stopped = await task(service, 'compact');
  assert.equal(stopped.state, 'failed', JSON.stringify(stopped));
  for (const name of names) assert.ok(stopped.problem.includes(join(service.dir, name)), stopped.problem);
  assert.equal(stopped.progress.freed_bytes, 0);
}

async function allBack(service: TestService): Promise<void> {
  await eventually('all volumes are open', async () => {
    const { volumes } = await volumesOf(service);
    return volumes.every((each: Json) => each.life !== 'lost');
  });
  service.storage.maintenance.wake();
  await eventually('all volumes have answered', async () => (await volumesOf(service)).incomplete === undefined);
}

/** A plan is made, and the repairs that it filed have ended, well or not. */
async function planned(service: TestService): Promise<void> {
  service.storage.maintenance.wake();
  await eventually('repairs end', async () => {
    const { planned_ms, is_planning, queued, inflight } = await service.ask('GET', '/admin/repair');
    return planned_ms !== undefined && !is_planning && queued + inflight === 0;
  });
}

async function compacted(service: TestService): Promise<void> {
  const done = await task(service, 'compact');
  assert.equal(done.state, 'done', done.problem);
}

for (const [shape, flags] of Object.entries(SHAPES)) {
  describe(`two of four directories are away, with ${shape}`, () => {
    const init = { dirs: DIRS, flags: [...COMMON, ...NO_PLANS, ...flags] };
    const prepared = async (service: TestService): Promise<Buffer[]> => {
      const objects = await fill(service);
      if (shape === 'stripes') assert.equal((await task(service, 'repair')).state, 'done');
      await compacted(service);
      return objects;
    };

    test('at the start: compaction stops and names them, and all is there when they are back', async () => {
      await using temp = await tempDir();
      let objects: Buffer[] = [];
      {
        await using service = await startService({ ...init, dir: temp.path });
        objects = await prepared(service);
      }
      for (const pair of PAIRS) {
        await move(temp.path, pair, 'away');
        {
          await using service = await startService({ ...init, dir: temp.path });
          await assertNamed(service, pair);
          await assertStopped(service, pair);
          await planned(service);
        }
        await move(temp.path, pair, 'back');
        await using service = await startService({ ...init, dir: temp.path });
        await allBack(service);
        await compacted(service);
        await assertServed(service, objects);
      }
    });

    test('at run time: compaction stops and names them, and all is there when they are back', async () => {
      await using service = await startService(init);
      const objects = await prepared(service);
      for (const pair of PAIRS) {
        await move(service.dir, pair, 'away');
        await eventually('it is noticed', async () => {
          const { volumes } = await volumesOf(service);
          return volumes.filter((each: Json) => each.life === 'lost').length === 2;
        });
        await assertNamed(service, pair);
        await assertStopped(service, pair);
        await move(service.dir, pair, 'back');
        await allBack(service);
        await compacted(service);
        await assertServed(service, objects);
      }
    });
  });
}

describe('a directory goes away and comes back during a compaction', () => {
  for (const phase of ['expire', 'mark', 'rewrite'] as const satisfies readonly CompactionPhase[]) {
    test(`in the phase ${phase}: the run stops, names it, and nothing is lost`, async () => {
      const flags = [...COMMON, ...NO_PLANS, ...SHAPES.copies, '--storage.lease=3650d'];
      await using service = await startService({ dirs: DIRS, flags });
      const objects = await fill(service, 2);
      // Bytes that are not those of their address are garbage.
      const wrong = `/o/${addressOf(Buffer.from('other bytes'))}`;
      const garbage = await service.send('PUT', wrong, { body: bytesOf(24 * MIB, 9), headers: await service.allow() });
      assertRefusal(garbage, 409, 'address_mismatch');
      const { compactor, volumes } = service.storage.engine;
      const take = compactor.bucket.take.bind(compactor.bucket);
      let hasHappened = false;
      compactor.bucket.take = async (count, until) => {
        if (compactor.report.phase === phase && !hasHappened) {
          hasHappened = true;
          await move(service.dir, ['d1'], 'away');
          await volumes.probe(signal);
          await move(service.dir, ['d1'], 'back');
          await eventually('it is back', async () => {
            await volumes.probe(signal);
            return volumes.set.members.filter((member) => member.isReadable).length === 4;
          });
        }
        await take(count, until);
      };
      const stopped = await task(service, 'compact');
      assert.ok(hasHappened);
      assert.equal(stopped.state, 'failed', JSON.stringify(stopped));
      assert.ok(stopped.problem.includes(join(service.dir, 'd1')), stopped.problem);
      await allBack(service);
      await assertServed(service, objects);
      const done = await task(service, 'compact');
      assert.equal(done.state, 'done', done.problem);
      assert.ok(done.progress.freed_bytes > 8 * MIB, 'garbage is reclaimed when all volumes are there');
      await assertServed(service, objects);
    });
  }
});

test('a volume that was given up does not keep compaction from running', async () => {
  await using service = await startService({ dirs: DIRS, flags: [...COMMON, ...NO_PLANS, ...SHAPES.copies] });
  const objects = await fill(service, 1);
  await move(service.dir, ['d2'], 'away');
  await eventually('it is noticed', async () => (await volumesOf(service)).incomplete !== undefined);
  await assertStopped(service, ['d2']);
  await service.ask('POST', `/admin/volumes/lose?volume=${encodeURIComponent(join(service.dir, 'd2'))}`);
  assert.equal((await volumesOf(service)).incomplete, undefined);
  assert.equal((await task(service, 'repair')).state, 'done');
  await compacted(service);
  await assertServed(service, objects);
});

test('an absent volume that is not configured any more stays on the roster', async () => {
  await using service = await startService({
    dirs: DIRS,
    flags: [...COMMON, ...SHAPES.copies, '--durability.repair_interval=1s'],
  });
  const objects = await fill(service, 1);
  await move(service.dir, ['d3'], 'away');
  await eventually('it is noticed', async () => (await volumesOf(service)).incomplete !== undefined);
  await service.reload(['d0', 'd1', 'd2']);
  await task(service, 'repair');
  await assertNamed(service, ['d3']);
  await assertStopped(service, ['d3']);
  await move(service.dir, ['d3'], 'back');
  await eventually('it is drained and removed', async () => {
    const { volumes } = await volumesOf(service);
    return volumes.length === 3;
  });
  await assertServed(service, objects);
});
