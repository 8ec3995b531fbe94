/** Each planted bug in the engine is detected by a crash history: the histories are strong enough. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mutant } from '@ron/explorer';
import {
  checkEveryCrash,
  CHUNK,
  COMPACTION,
  ENGINE,
  nextTurn,
  OBJECTS,
  UPLOADS,
  type Engine,
  type Step,
} from './crash-history.ts';

const urlOf = (path: string): string => import.meta.resolve(path);

interface Planted {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly entry: string;
  readonly through: readonly string[];
  readonly history: readonly Step[];
  readonly caught: RegExp;
}

const STORE = { entry: '../src/objects/object-store.ts', through: ['../src/objects/object-writer.ts'] };
const JOURNAL = {
  entry: '../src/uploads/uploads.ts',
  through: ['../src/uploads/upload.ts', '../src/uploads/mirrored-journal.ts', '../src/uploads/upload-journal.ts'],
};
const REWRITE = { entry: '../src/volume/local-volume.ts', through: ['../src/compaction/rewrite.ts'] };

const PLANTED: readonly Planted[] = [
  {
    bug: 'a manifest is written before its chunks are durable',
    file: '../src/objects/object-writer.ts',
    find: 'await volume.sync(signal, needed);\n    this.#unsynced.clear();\n    await this.#requireDurable(needed, signal);',
    replace: 'void volume;',
    ...STORE,
    history: OBJECTS,
    caught: /missing|visible object is damaged/,
  },
  {
    bug: 'a put is acknowledged before its sync',
    file: '../src/volume/local-volume.ts',
    find: "const durable = durability === 'now' || ",
    replace: 'const durable = ',
    entry: '../src/volume/local-volume.ts',
    through: [],
    history: [(history) => Promise.all([history.put(300, 3), later(() => history.put(300, 3))]).then(() => undefined)],
    caught: /expected was true/,
  },
  {
    bug: 'an offset is acknowledged before the bytes are durable',
    file: '../src/objects/object-writer.ts',
    find: 'this.#requireUsable();\n    await this.#makeDurable(signal);',
    replace: 'this.#requireUsable();',
    ...STORE,
    history: [(history) => history.upload(5000, 5, [2500])],
    caught: /^Error: after operation \d+: upload/,
  },
  {
    bug: 'an offset is acknowledged before its journal is durable',
    file: '../src/uploads/upload-journal.ts',
    find: 'await file.sync();\n      this.#isBroken = false;',
    replace: 'this.#isBroken = false;',
    ...JOURNAL,
    history: UPLOADS,
    caught: /^Error: after operation \d+: upload/,
  },
  {
    bug: 'the name of a journal is not durable',
    file: '../src/uploads/upload-journal.ts',
    find: 'await this.#fs.syncDir(this.#dir);\n    this.#isBroken = false;',
    replace: 'this.#isBroken = false;',
    ...JOURNAL,
    history: UPLOADS,
    caught: /^Error: after operation \d+: upload/,
  },
  {
    bug: 'a segment is removed before its records are moved',
    file: '../src/compaction/rewrite.ts',
    find: 'await this.#moveAll();',
    replace: '',
    ...REWRITE,
    history: COMPACTION,
    caught: /damaged|expected was/,
  },
  {
    bug: 'a segment is removed before the index on disk leads elsewhere',
    file: '../src/compaction/rewrite.ts',
    find: 'await this.#flush();\n    await this.#init.log.remove',
    replace: 'await this.#init.log.remove',
    ...REWRITE,
    history: COMPACTION,
    caught: /records are lost|damaged/,
  },
  {
    bug: 'a removed object comes back',
    file: '../src/compaction/rewrite.ts',
    find: 'const { type, id, seq, time_s, payload_bytes } = head;',
    replace:
      'const { type, id, seq, time_s, payload_bytes } = head;\n    if (type === 7) return undefined; // a removal',
    ...REWRITE,
    // The segment with the removal is compacted first.
    history: [
      (history) => history.put(5 * CHUNK, 1),
      (history) => history.put(200, 2),
      (history) => history.put(3 * CHUNK, 3),
      (history) => history.remove(3 * CHUNK, 3),
      (history) => history.remove(200, 2),
      (history) => history.compact(),
    ],
    caught: /true was found/,
  },
];

/** Begins after other operations have written and before they are synced. */
async function later(work: () => Promise<void>): Promise<void> {
  await nextTurn();
  await nextTurn();
  await work();
}

for (const { bug, file, find, replace, entry, through, history, caught } of PLANTED) {
  test(`caught: ${bug}`, async () => {
    const init = { entry: urlOf(entry), through: through.map(urlOf) };
    const broken = await mutant<Partial<Engine>>(urlOf(file), find, replace, init);
    await assert.rejects(checkEveryCrash(history, { ...ENGINE, ...broken }, 8), caught);
  });
}
