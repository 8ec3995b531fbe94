/** The deadline of an upload, on the real registry and directory: openers that do not end are the only stand-ins. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { Cell, Deadline, isRonError, Mpsc, NEVER, onAbort, RonError, sched } from '@ron/kernel';
import { DiskGate, realFileSystem } from '@ron/log';
import { eventually, tempDir } from '@ron/testkit';
import { MountTable, newMountTable } from '../../src/packs/mount-table.ts';
import type { OpenPackInit, PackOpener } from '../../src/packs/pack.ts';
import { PackDirectory } from '../../src/packs/pack-directory.ts';
import type { PackJob } from '../../src/packs/pack-jobs.ts';
import { PackRegistry } from '../../src/packs/pack-registry.ts';
import { PackVerifier } from '../../src/packs/pack-verifier.ts';
import { somePmtiles } from './registry-support.ts';

/** Never opens a pack: it waits until its signal aborts. */
function hangingOpener(opened: OpenPackInit[], ignoresSignal = false): PackOpener {
  return {
    open: (init) => {
      opened.push(init);
      const parked = sched.park<never>('hangs');
      if (!ignoresSignal) onAbort(init.signal, parked.fail);
      return parked.promise;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function* bodyOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function openRegistry(path: string, opener: PackOpener) {
  const directory = new PackDirectory(path, realFileSystem, new DiskGate({ calls_max: 2, late_ms: 5000 }));
  const jobs = new Mpsc<PackJob>('verify', 2);
  const ignored = (): void => undefined;
  const verifier = new PackVerifier({
    directory,
    isReadOnly: false,
    table: new MountTable(new Cell('routing_table', 2, newMountTable()), 10),
    openers: { pmtiles: opener, mbtiles: opener },
    jobs,
    budget_ms: 100,
    onMounted: ignored,
    onRemoved: ignored,
    onRefused: ignored,
    onDamaged: ignored,
  });
  const deadline = (signal?: AbortSignal): Deadline => Deadline.after('pack', 500, signal && { signal });
  const registry = new PackRegistry({ directory, verifier, bytes_max: 1e6, deadline, fetch: undefined });
  const stopping = new AbortController();
  const task = registry.run(stopping.signal);
  const put = (name: string) =>
    registry.put({ name, from: bodyOf(somePmtiles(1)), expect: undefined, signal: NEVER }).then(
      () => 'mounted',
      (error: unknown) => (isRonError(error) ? error.code : String(error)),
    );
  return { registry, jobs, stopping, task, put };
}

test('an upload that is not verified in time is refused, those behind it too, and nothing is kept', async () => {
  await using temp = await tempDir();
  const opened: OpenPackInit[] = [];
  const { registry, jobs, stopping, task, put } = openRegistry(temp.path, hangingOpener(opened));
  const first = put('a');
  await eventually('the first is being verified', () => opened.length === 1);
  // [edge I-3] [edge I-9] Two more fit into the channel, and a fourth is refused at once.
  const waiting = [put('b'), put('c')];
  await eventually('two jobs wait', () => jobs.depth === 2);
  assert.equal(await put('d'), 'busy');
  // [edge I-4] The deadline begins after the last byte, and counts the wait.
  assert.deepEqual(await Promise.all([first, ...waiting]), ['timeout', 'timeout', 'timeout']);
  await eventually('nothing is kept', async () => (await readdir(temp.path)).length === 0);
  const last = put('e');
  await eventually('another is being verified', () => opened.some(({ path }) => path.includes('.e.')));
  const queued = put('f');
  await eventually('one job waits', () => jobs.depth === 1);
  // [edge I-6] A stop refuses the jobs that wait.
  stopping.abort(new RonError('draining', 'stopping'));
  await task;
  assert.deepEqual(await Promise.all([last, queued]), ['timeout', 'draining']);
  await registry[Symbol.asyncDispose]();
});

test('a verification that ignores its signal does not keep its caller waiting', async () => {
  await using temp = await tempDir();
  const { put } = openRegistry(temp.path, hangingOpener([], true));
  // [edge I-5]
  assert.deepEqual(await Promise.all([put('a'), put('b')]), ['timeout', 'timeout']);
  await eventually('nothing is kept', async () => (await readdir(temp.path)).length === 0);
});
