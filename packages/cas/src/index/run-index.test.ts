/** The runs of the index against a plain map: random writes, removals, merges and reopenings. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { TABLES, type Applied, type Place, type Table } from './entry.ts';
import { memoryFiles } from './memory-files.ts';
import { PlaceIndex } from './place-index.ts';
import { RunDamaged } from './run-file.ts';
import { ON_DISK, RunIndex } from './run-index.ts';

const DIR = '/index';
const idOf = (name: number): Buffer => createHash('sha256').update(String(name)).digest();

const placeOf = (seq: number): Place => ({
  segment: 1 + (seq % 7),
  offset: seq * 64,
  payload_bytes: seq,
  meta_bytes: seq % 9,
  type: 1 + (seq % 11),
  seq,
  time_s: 1_000_000 + seq,
  ...(seq % 5 === 0 && { isDamaged: true }),
});

const appliedAt = (seq: number): Applied => ({ position: { segment: 1, offset: seq * 64 }, seq });

async function openIndex(fs: FileSystem): Promise<PlaceIndex> {
  return new PlaceIndex({ runs: await RunIndex.open({ fs, dir: DIR }) });
}

/** Without the range of superseded records. */
const plain = (place: Place | undefined): object | undefined => {
  if (place === undefined) return undefined;
  const { dead_from: _from, dead_to: _to, ...rest } = place;
  return rest;
};

type Model = Map<string, { table: Table; id: Buffer; place: Place }>;
const modelKey = (table: Table, id: Uint8Array): string => `${table} ${Buffer.from(id).toString('hex')}`;

async function listing(index: PlaceIndex, table: Table, count: number): Promise<[string, object | undefined][]> {
  const listed: [string, object | undefined][] = [];
  let after: Uint8Array | undefined;
  for (;;) {
    const page = await index.page(table, after, count);
    for (const [id, place] of page.entries) listed.push([id.toString('hex'), plain(place)]);
    if (page.last === undefined) return listed;
    after = Uint8Array.from(page.last);
  }
}

async function agree(index: PlaceIndex, model: Model, names: number): Promise<void> {
  for (const table of TABLES) {
    for (let name = 0; name < names; name++) {
      const expected = model.get(modelKey(table, idOf(name)))?.place;
      assert.deepEqual(plain(await index.get(table, idOf(name))), plain(expected));
      const now = index.getNow(table, idOf(name));
      if (now !== ON_DISK) assert.deepEqual(plain(now), plain(expected));
      const tag = index.tag(table, idOf(name));
      assert.deepEqual(tag?.type, expected?.type);
      assert.deepEqual(tag?.isDamaged, expected && expected.isDamaged === true);
    }
  }
}

type Command =
  | { readonly do: 'set' | 'remove'; readonly table: Table; readonly name: number }
  | { readonly do: 'flush' | 'merge' | 'reopen' };

const commandOf = (names: number): fc.Arbitrary<Command> =>
  fc.oneof(
    {
      weight: 12,
      arbitrary: fc.record({
        do: fc.constantFrom('set' as const, 'set' as const, 'remove' as const),
        table: fc.constantFrom(...TABLES),
        name: fc.nat(names - 1),
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('flush' as const, 'merge' as const, 'reopen' as const) }) },
  );

test('look-ups and listings agree with a map after flushes, merges and reopenings', async () => {
  const names = 24;
  await fc.assert(
    fc.asyncProperty(
      fc.array(commandOf(names), { maxLength: 120 }),
      fc.integer({ min: 1, max: 40 }),
      async (commands, count) => {
        const fs = memoryFiles();
        let index = await openIndex(fs);
        const model: Model = new Map();
        let seq = 0;
        for (const command of commands) {
          seq += 1;
          if (command.do === 'set') {
            index.set(command.table, idOf(command.name), placeOf(seq));
            const entry = { table: command.table, id: idOf(command.name), place: placeOf(seq) };
            model.set(modelKey(command.table, entry.id), entry);
          } else if (command.do === 'remove') {
            index.remove(command.table, idOf(command.name));
            model.delete(modelKey(command.table, idOf(command.name)));
          } else {
            const now = seq;
            await index.flush(() => appliedAt(now));
            if (command.do === 'merge') await index.runs.merged();
            if (command.do !== 'reopen') continue;
            await index.close();
            index = await openIndex(fs);
            assert.deepEqual(index.applied, appliedAt(now));
          }
        }
        await agree(index, model, names);
        await index.flush(() => appliedAt(seq + 1));
        for (const table of TABLES) {
          const expected = [...model.values()]
            .filter((entry) => entry.table === table)
            .toSorted((a, b) => a.id.compare(b.id))
            .map(({ id, place }) => [id.toString('hex'), plain(place)] as const);
          assert.deepEqual(await listing(index, table, count), expected);
          const into = Buffer.alloc(32 * (names + 1));
          const listed = await index.ids(table, undefined, into);
          assert.deepEqual(into.subarray(0, listed * 32).toString('hex'), expected.map(([id]) => id).join(''));
        }
        await agree(index, model, names);
        await index.close();
      },
    ),
    { numRuns: 60 },
  );
});

/** Writes, a merge among them, and the states that were flushed with their `applied`. */
async function writeSome(fs: FileSystem): Promise<Map<number, Map<string, Place | undefined>>> {
  const states = new Map<number, Map<string, Place | undefined>>();
  const state = new Map<string, Place | undefined>();
  states.set(0, new Map());
  const index = await openIndex(fs);
  let seq = 0;
  for (let flush = 0; flush < 6; flush++) {
    for (let each = 0; each < 5; each++) {
      seq += 1;
      const name = (seq * 7) % 11;
      if (seq % 4 === 0) {
        index.remove('object', idOf(name));
        state.delete(String(name));
      } else {
        index.set('object', idOf(name), placeOf(seq));
        state.set(String(name), placeOf(seq));
      }
    }
    const now = seq;
    states.set(now, new Map(state));
    await index.flush(() => appliedAt(now));
    if (flush % 2 === 1) await index.runs.merged();
  }
  await index.close();
  return states;
}

test('a crash at any point leaves exactly one flushed state, with its own applied', async () => {
  const disk = new CrashFileSystem();
  const states = await writeSome(disk);
  let reopened = 0;
  for (let operations = 0; operations <= disk.operations; operations++) {
    for (const image of disk.imagesAt(operations, 8, () => 0.37)) {
      const index = await openIndex(new CrashFileSystem(image));
      const expected = states.get(index.applied?.seq ?? 0);
      assert.ok(expected !== undefined, `applied ${index.applied?.seq} was flushed`);
      for (let name = 0; name < 11; name++) {
        assert.deepEqual(plain(await index.get('object', idOf(name))), plain(expected.get(String(name))));
      }
      await index.close();
      reopened += 1;
    }
  }
  assert.ok(reopened > 100);
});

test('a flush that was acknowledged survives every later crash', async () => {
  const disk = new CrashFileSystem();
  const index = await openIndex(disk);
  index.set('object', idOf(1), placeOf(1));
  await index.flush(() => appliedAt(1));
  const from = disk.operations;
  for (let seq = 2; seq < 8; seq++) {
    index.set('object', idOf(seq), placeOf(seq));
    await index.flush(() => appliedAt(seq));
  }
  await index.runs.merged();
  for (let operations = from; operations <= disk.operations; operations++) {
    for (const image of disk.imagesAt(operations, 8, () => 0.61)) {
      const again = await openIndex(new CrashFileSystem(image));
      assert.ok((again.applied?.seq ?? 0) >= 1);
      assert.deepEqual(plain(await again.get('object', idOf(1))), plain(placeOf(1)));
      await again.close();
    }
  }
});

test('a flipped bit anywhere in a run is detected, at open or at the read, and never yields a wrong place', async () => {
  const disk = new CrashFileSystem();
  const states = await writeSome(disk);
  const last = [...states.keys()].at(-1)!;
  const expected = states.get(last)!;
  const files = disk.files();
  let found = 0;
  for (const [path, bytes] of files) {
    for (let byte = 0; byte < bytes.length; byte++) {
      const image = new Map(files);
      const changed = Uint8Array.from(bytes);
      changed[byte]! ^= 1 << (byte % 8);
      image.set(path, changed);
      try {
        const index = await openIndex(new CrashFileSystem(image));
        for (let name = 0; name < 11; name++) {
          assert.deepEqual(plain(await index.get('object', idOf(name))), plain(expected.get(String(name))));
        }
        await index.page('object', undefined, 100);
      } catch (error) {
        const cause = error instanceof RunDamaged ? error : (error as Error).cause;
        assert.ok(cause instanceof RunDamaged, String(error));
        found += 1;
      }
    }
  }
  const total = [...files.values()].reduce((sum, bytes) => sum + bytes.length, 0);
  assert.equal(found, total);
});

test('a missing run is detected; a lost newest run leaves the state before it', async () => {
  const disk = new CrashFileSystem();
  const index = await openIndex(disk);
  for (let seq = 1; seq <= 3; seq++) {
    index.set('object', idOf(seq), placeOf(seq));
    await index.flush(() => appliedAt(seq));
  }
  await index.close();
  const paths = [...disk.files().keys()].toSorted();
  assert.equal(paths.length, 3);
  for (const [at, path] of paths.entries()) {
    const image = disk.files();
    image.delete(path);
    if (at < 2) await assert.rejects(openIndex(new CrashFileSystem(image)), RunDamaged);
    else assert.equal((await openIndex(new CrashFileSystem(image))).applied?.seq, 2);
  }
});

test('entries that hide others are kept by a merge without the oldest run, and dropped by one with it', async () => {
  const index = await openIndex(memoryFiles());
  for (let name = 0; name < 2000; name++) index.set('content', idOf(name), placeOf(name + 1));
  await index.flush(() => appliedAt(2000));
  for (let flush = 0; flush < 4; flush++) {
    index.remove('content', idOf(flush));
    await index.flush(() => appliedAt(2001 + flush));
  }
  await index.runs.merged();
  assert.deepEqual(
    index.runs.runs.map((run) => [run.count, run.footer.none]),
    [
      [4, 4],
      [2000, 0],
    ],
  );
  for (let name = 0; name < 5; name++) assert.equal(index.tag('content', idOf(name)) === undefined, name < 4);
  for (let name = 4; name < 1100; name++) index.remove('content', idOf(name));
  await index.flush(() => appliedAt(3000));
  await index.runs.merged();
  assert.deepEqual(
    index.runs.runs.map((run) => [run.count, run.footer.none]),
    [[900, 0]],
  );
  assert.equal((await listing(index, 'content', 100)).length, 900);
});
