/** The journal of an upload in several places, one of which does not answer: enough others have each frame. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { realFileSystem, type FileSystem } from '@ron/log';
import { MirroredJournal, type JournalPlace, type JournalPlaces } from './mirrored-journal.ts';
import { FileJournal, FrameType, type Frame } from './upload-journal.ts';

const NAME = '00000000000000000000000000000000';
const frameOf = (text: string): Frame => ({ type: FrameType.progress, payload: Buffer.from(text) });
const FIRST = frameOf('first');
const SECOND = frameOf('second');
const THIRD = frameOf('third');

let base: string;
/** By directory: calls wait for this. */
let gates: Map<string, PromiseWithResolvers<void>>;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'ron-journals-'));
  gates = new Map();
});
afterEach(() => {
  for (const gate of gates.values()) gate.resolve();
  rmSync(base, { recursive: true, force: true });
});

function placeIn(name: string): JournalPlace {
  const dir = join(base, name);
  mkdirSync(dir);
  const held = <T>(work: () => Promise<T>): Promise<T> => (gates.get(name)?.promise ?? Promise.resolve()).then(work);
  const fs: FileSystem = {
    ...realFileSystem,
    create: (path) => held(() => realFileSystem.create(path)),
    open: (path, access) => held(() => realFileSystem.open(path, access)),
    rename: (from, to) => held(() => realFileSystem.rename(from, to)),
  };
  return { dir, fs };
}

function placesIn(names: readonly string[], copies: number, copies_min: number): JournalPlaces {
  const places = names.map(placeIn);
  return { all: () => places, now: () => places, copies, copies_min };
}

const hold = (name: string): void => void gates.set(name, Promise.withResolvers());
function release(name: string): void {
  gates.get(name)?.resolve();
  gates.delete(name);
}

/** The payloads of the frames in each place. */
async function texts(places: JournalPlaces): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const { dir } of places.all()) {
    if (!readdirSync(dir).includes(NAME)) continue;
    const { frames } = await FileJournal.load(realFileSystem, dir, NAME);
    found[basename(dir)] = frames.map(({ payload }) => Buffer.from(payload).toString());
  }
  return found;
}

test('when one place does not accept a frame, the whole journal is written in another', async () => {
  const places = placesIn(['a', 'b', 'c'], 2, 2);
  const journal = new MirroredJournal(places, NAME);
  await journal.replace([FIRST]);
  assert.deepEqual(await texts(places), { a: ['first'], b: ['first'] });
  hold('b');
  const began_ms = performance.now();
  await journal.append(SECOND, () => [FIRST, SECOND]);
  assert.ok(performance.now() - began_ms < 3000);
  assert.deepEqual(await texts(places), { a: ['first', 'second'], b: ['first'], c: ['first', 'second'] });
  assert.ok(!journal.isWasteful(0), 'it has as many copies as there are to be');
  // The next ones do not meet the slow place, and another journal is not begun there.
  const again_ms = performance.now();
  await journal.append(THIRD, () => assert.fail('two copies are enough'));
  const other = new MirroredJournal(places, NAME.replaceAll('0', '1'));
  await other.replace([FIRST]);
  assert.ok(performance.now() - again_ms < 500);
  release('b');
  // A write that was given up may still arrive. It says nothing that was not acknowledged elsewhere.
  await journal.remove();
  assert.deepEqual(await texts(places), {});
});

test('a new journal is created in other places than one that does not answer', async () => {
  const places = placesIn(['a', 'b', 'c'], 2, 2);
  hold('a');
  const journal = new MirroredJournal(places, NAME);
  const began_ms = performance.now();
  await journal.replace([FIRST]);
  assert.ok(performance.now() - began_ms < 3000);
  assert.deepEqual(await texts(places), { b: ['first'], c: ['first'] });
  // While the first write is under way in a place, no second one begins there: it could end before the first.
  await journal.replace([FIRST, SECOND]);
  release('a');
  await journal.remove();
  assert.deepEqual(await texts(places), {});
  assert.deepEqual(readdirSync(join(base, 'a')), []);
});

test('with a quorum of one, the other copy may be late', async () => {
  const places = placesIn(['a', 'b'], 2, 1);
  const journal = new MirroredJournal(places, NAME);
  await journal.replace([FIRST]);
  hold('a');
  const began_ms = performance.now();
  await journal.append(SECOND, () => [FIRST, SECOND]);
  assert.ok(performance.now() - began_ms < 3000);
  assert.deepEqual((await texts(places)).b, ['first', 'second']);
  release('a');
});

test('a slow place is waited for when no other is left', async () => {
  const places = placesIn(['a', 'b'], 2, 2);
  const journal = new MirroredJournal(places, NAME);
  await journal.replace([FIRST]);
  hold('b');
  let isDone = false;
  const appended = journal.append(SECOND, () => [FIRST, SECOND]).then(() => (isDone = true));
  await new Promise((resolve) => void setTimeout(resolve, 1300));
  assert.ok(!isDone, 'one copy is too few');
  release('b');
  await appended;
  assert.deepEqual(await texts(places), { a: ['first', 'second'], b: ['first', 'second'] });
});
