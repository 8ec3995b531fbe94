/** Packs are uploaded, replaced, reloaded and removed while clients read tiles: no wrong byte and no failed request. */
import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startService, type TestEdge } from '../support.ts';
import { mountPack, packsDir, someMbtiles, somePmtiles, tileOf, untilReady } from './registry-support.ts';

const ROUNDS = 8;
const READERS = 4;
const PLACES = [
  [0, 0, 0],
  [1, 1, 0],
  [2, 3, 1],
  [2, 0, 3],
] as const;

interface Load {
  /** The seeds that a pack may have now. */
  readonly allowed: Map<string, Set<number>>;
  readonly stop: AbortController;
  reads: number;
}

/** Reads tiles of all packs until it is stopped. A pack that is being removed may be absent. */
async function read(edge: TestEdge, load: Load): Promise<void> {
  for (let at = 0; !load.stop.signal.aborted; at += 1) {
    const [z, x, y] = PLACES[at % PLACES.length]!;
    for (const [name, seeds] of load.allowed) {
      const before = new Set(seeds);
      const reply = await edge.send('GET', `/edge/assets/pack/${name}/${z}/${x}/${y}.png`);
      const after = new Set([...before, ...seeds]);
      load.reads += 1;
      const isAbsent = reply.status === 404 && after.has(0);
      const isRight = reply.status === 200 && [...after].some((seed) => reply.body.equals(tileOf(seed, z, x, y)));
      assert.ok(isAbsent || isRight, `${name} ${reply.status} ${reply.text.slice(0, 200)}`);
    }
  }
}

/** Runs a change of a pack; during it, both versions are right. Seed 0: no pack. */
async function change(load: Load, name: string, seed: number, run: () => Promise<void>): Promise<void> {
  const seeds = load.allowed.get(name)!;
  seeds.add(seed);
  await run();
  for (const old of seeds) if (old !== seed) seeds.delete(old);
}

test('uploads, reloads and removals under load', async (t) => {
  await using edge = await startService({ flags: ['--ingress.rps_limit=100000'] });
  await untilReady(edge);
  await mountPack(edge, 'pm', somePmtiles(1));
  await mountPack(edge, 'mb', await someMbtiles(1));
  await mountPack(edge, 'moved', somePmtiles(1));
  const load: Load = {
    allowed: new Map([
      ['pm', new Set([1])],
      ['mb', new Set([1])],
      ['moved', new Set([1])],
      ['gone', new Set([0])],
    ]),
    stop: new AbortController(),
    reads: 0,
  };
  const readers = Array.from({ length: READERS }, () => read(edge, load));
  for (let seed = 2; seed < 2 + ROUNDS; seed += 1) {
    const databases = await someMbtiles(seed);
    await change(load, 'pm', seed, () => mountPack(edge, 'pm', somePmtiles(seed)));
    await change(load, 'mb', seed, () => mountPack(edge, 'mb', databases));
    await change(load, 'moved', seed, async () => {
      const path = join(packsDir(edge), 'moved.pmtiles');
      await writeFile(`${path}.part`, somePmtiles(seed));
      await rename(`${path}.part`, path);
      await edge.edge.reload?.();
    });
    await change(load, 'gone', seed, () => mountPack(edge, 'gone', somePmtiles(seed)));
    await change(load, 'gone', 0, async () => {
      assert.equal((await edge.call('DELETE', '/edge/packs/gone')).status, 204);
    });
  }
  load.stop.abort();
  await Promise.all(readers);
  t.diagnostic(`${load.reads} reads during ${ROUNDS * 5} changes`);
  assert.equal(await edge.metric('integrity_fail_total{reason="pack"}'), 0);
});
