/** Journals of uploads that are torn, damaged or oversized. */
import assert from 'node:assert/strict';
import { appendFileSync, existsSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { addressOf, bodyOf, CHUNK, close, content, dir, open, signal } from '../../test/uploads-fixture.ts';
import type { DamagedRecord } from '../volume/volume.ts';

test('a torn or damaged end of a journal loses only its frames, and the upload resumes before them', async () => {
  const bytes = content(300_000);
  for (const harm of ['torn', 'rubbish', 'shorter'] as const) {
    let opened = await open();
    const { id } = await opened.uploads.create({ size: bytes.length });
    for (const [from, to] of [
      [0, 100_000],
      [100_000, 200_000],
    ] as const) {
      await opened.uploads.append({ id, offset: from, body: bodyOf(bytes.subarray(from, to)), signal });
    }
    await close();
    const path = join(dir, 'uploads', id);
    if (harm === 'torn') truncateSync(path, statSync(path).size - 1);
    if (harm === 'shorter') truncateSync(path, statSync(path).size - 2000);
    if (harm === 'rubbish') appendFileSync(path, content(1000, 7));
    opened = await open();
    const { offset } = opened.uploads.status(id)!;
    assert.equal(offset, harm === 'rubbish' ? 200_000 : 100_000, harm);
    const half = bodyOf(bytes.subarray(offset, 250_000));
    await opened.uploads.append({ id, offset, body: half, signal });
    opened = await open();
    assert.equal(opened.uploads.status(id)!.offset, 250_000, harm);
    const body = bodyOf(bytes.subarray(250_000));
    assert.equal((await opened.uploads.append({ id, offset: 250_000, body, signal })).address, addressOf(bytes));
  }
});

test('a journal without a complete first frame is removed', async () => {
  await open();
  await close();
  appendFileSync(join(dir, 'uploads', 'a'.repeat(32)), content(5));
  appendFileSync(join(dir, 'uploads', `${'b'.repeat(32)}.new`), content(5));
  const opened = await open();
  assert.deepEqual(opened.uploads.counts, { open: 0, finished: 0 });
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
});

test('a journal stays small even if the pieces are small', async () => {
  const opened = await open();
  const bytes = content(4 * CHUNK);
  const { id } = await opened.uploads.create({ size: 1 << 25 });
  // Each piece is a frame; the tail in it is obsolete once its chunk is complete.
  for (let round = 0; round < 8; round++) {
    for (let at = 0; at < bytes.length; at += 16_000) {
      const piece = bytes.subarray(at, at + 16_000);
      const { offset } = opened.uploads.status(id)!;
      await opened.uploads.append({ id, offset, body: bodyOf(piece), signal });
    }
  }
  assert.equal(opened.uploads.status(id)!.offset, 8 * bytes.length);
  assert.ok(statSync(join(dir, 'uploads', id)).size < 1.5 * (1 << 20));
});

test('a damaged journal is quarantined and reported; an empty one is removed', async () => {
  const damaged: DamagedRecord[] = [];
  const onDamage = (record: DamagedRecord): unknown => damaged.push(record);
  const { uploads: first } = await open();
  const ids: string[] = [];
  for (let at = 0; at < 3; at++) {
    const { id } = await first.create({ size: 3 * CHUNK });
    ids.push(id);
    for (let part = 0; part < 2; part++) {
      await first.append({ id, offset: part * CHUNK, body: bodyOf(content(CHUNK, part)), signal });
    }
  }
  await close();
  const [spoilt, partly, empty] = ids.map((id) => join(dir, 'uploads', id)) as [string, string, string];
  const flip = (path: string, at: number): void => {
    const bytes = readFileSync(path);
    bytes[at]! ^= 1;
    writeFileSync(path, bytes);
  };
  flip(spoilt, 20);
  // The first frame after that of the creation.
  flip(partly, 9 + readFileSync(partly).readUInt32LE(4) + 20);
  truncateSync(empty, 5);
  const { uploads: again } = await open({ onDamage });
  assert.deepEqual(new Set(damaged.map((record) => record.id_hex)), new Set(ids.slice(0, 2)));
  assert.deepEqual(readdirSync(join(dir, 'quarantine')), [`upload-${ids[0]}`]);
  assert.deepEqual([again.status(ids[0]!), again.status(ids[2]!)], [undefined, undefined]);
  assert.equal(again.status(ids[1]!)?.offset, 0);
  assert.ok(!existsSync(spoilt) && !existsSync(empty));
});
