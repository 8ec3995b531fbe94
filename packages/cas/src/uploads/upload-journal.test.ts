/** A journal on a disk that fails, and then loses power: exactly the acknowledged frames are read back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import fc from 'fast-check';
import { decodeFrames, FileJournal, type Frame } from './upload-journal.ts';

const DIR = '/uploads';
const NAME = 'journal';
const frameOf = (value: number): Frame => ({ type: 1 + (value % 4), payload: Buffer.alloc(1 + value * 100, value) });

/** A journal whose first frame is replaced and added to; each value is tried again once when the disk fails. */
class Keeper {
  readonly kept: number[] = [];
  readonly #journal: FileJournal;

  constructor(fs: CrashFileSystem) {
    this.#journal = FileJournal.fresh(fs, DIR, NAME);
  }

  async keep(value: number, afresh: boolean): Promise<void> {
    const attempt = async (wants: boolean): Promise<void> => {
      if (wants || this.#journal.isWasteful(Infinity)) {
        await this.#journal.replace([...this.kept, value].map(frameOf));
      } else await this.#journal.append(frameOf(value));
    };
    await attempt(afresh).catch(() => attempt(false));
    this.kept.push(value);
  }
}

async function load(image: Map<string, Uint8Array>): Promise<number[]> {
  const { frames } = await FileJournal.load(new CrashFileSystem(image), DIR, NAME);
  return frames.map((frame) => frame.payload[0]!);
}

test('acknowledged frames are read back after any single failure and a power failure', async () => {
  for (let at = 1, failed = true; failed; at++) {
    let operations = 0;
    failed = false;
    const before = (operation: string): void => {
      if (operation === 'close' || ++operations !== at) return;
      failed = true;
      throw Object.assign(new Error('EIO'), { code: 'EIO' });
    };
    const disk = new CrashFileSystem(new Map(), { before });
    const keeper = new Keeper(disk);
    for (const [value, afresh] of [
      [1, true],
      [2, false],
      [3, true],
      [4, false],
      [5, false],
    ] as const) {
      await keeper.keep(value, afresh);
      const images = [...disk.imagesAt(disk.operations, 50, Math.random)];
      for (const image of images) assert.deepEqual(await load(image), keeper.kept, `failure ${at}, value ${value}`);
    }
  }
});

test('a new process continues after a torn end', async () => {
  const disk = new CrashFileSystem();
  const keeper = new Keeper(disk);
  await keeper.keep(1, true);
  await keeper.keep(2, false);
  disk.damage(`${DIR}/${NAME}`, (bytes) => bytes.subarray(0, bytes.length - 1));
  const { journal, frames } = await FileJournal.load(disk, DIR, NAME);
  assert.equal(frames.length, 1);
  assert.ok(journal.isWasteful(Infinity), 'a torn end is not overwritten');
  await journal.replace([frameOf(1), frameOf(3)]);
  await journal.append(frameOf(4));
  assert.deepEqual(await load(disk.files()), [1, 3, 4]);
});

test('any bytes are parsed as frames up to the first invalid one', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const { frames, end } = decodeFrames(Buffer.from(bytes));
      assert.equal(
        frames.reduce((sum, frame) => sum + 9 + frame.payload.length, 0),
        end,
      );
      assert.ok(end <= bytes.length);
    }),
  );
});
