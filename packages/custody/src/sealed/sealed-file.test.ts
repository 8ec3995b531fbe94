import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { isRonError, type ErrorCode } from '@ron/kernel';
import { CrashFileSystem, type Faults } from '@ron/log/testing';
import { isDamaged, SealedFile, type SealedFileInit } from './sealed-file.ts';
import { tempDirFor } from '@ron/testkit';
import type { Unlock } from './sealer.ts';

interface Document {
  readonly count: number;
}

const { signal } = new AbortController();
const PATH = '/keys/store.sealed';
const KEK: Unlock = { kek: new Uint8Array(32).fill(9) };
const PASSPHRASE: Unlock = { passphrase: 'correct horse battery', scrypt: { log2_n: 10, r: 8, p: 1 } };

function open(init: Partial<SealedFileInit<Document>>): Promise<SealedFile<Document>> {
  return SealedFile.open<Document>({
    path: PATH,
    unlock: KEK,
    purpose: 'test',
    initial: { count: 0 },
    signal,
    ...init,
  });
}

async function rejectsWith(code: ErrorCode, work: Promise<unknown>, message = /./): Promise<void> {
  await assert.rejects(work, (error) => isRonError(error, code) && message.test(error.message));
}

async function directory(t: TestContext): Promise<string> {
  const dir = tempDirFor(t);
  return dir;
}

test('a written document and its version survive reopening, in a file with mode 0600', async (t) => {
  const path = join(await directory(t), 'new', 'store.sealed');
  for (const unlock of [KEK]) {
    const file = await open({ path, unlock });
    assert.equal(file.version, 1);
    assert.equal(await file.replace({ count: 5 }, signal), 2);
    await file.close();
    await file.close();
    const again = await open({ path, unlock });
    assert.deepEqual([again.value, again.version], [{ count: 5 }, 2]);
    await again.close();
  }
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.ok(!(await readFile(path)).includes('count'));
});

test('only the passphrase that sealed a file opens it; short passphrases are refused', async () => {
  const fs = new CrashFileSystem();
  await (await open({ fs, unlock: PASSPHRASE })).replace({ count: 1 }, signal);
  assert.deepEqual((await open({ fs, unlock: PASSPHRASE })).value, { count: 1 });
  await rejectsWith(
    'not_ready',
    open({ fs, unlock: { passphrase: 'correct horse batterz' } }),
    /the key or passphrase is wrong/,
  );
  await rejectsWith('not_ready', open({ fs, unlock: KEK }), /sealed with a passphrase, but a key was given/);
  await rejectsWith('validation', open({ fs: new CrashFileSystem(), unlock: { passphrase: 'short' } }));
});

test('relock survives a power cut at any moment, and the old secret no longer opens the file', async () => {
  const fs = new CrashFileSystem();
  const file = await open({ fs });
  const sealed = file.seal('part', Buffer.from('secret'));
  await file.replace({ count: 1 }, signal);
  const before = fs.operations;
  await file.relock(PASSPHRASE, signal);
  for (let at = before; at < fs.operations; at++) {
    for (const image of fs.imagesAt(at, 16, Math.random)) {
      const opened: SealedFile<Document> = await Promise.any(
        [KEK, PASSPHRASE].map((unlock) => open({ fs: new CrashFileSystem(image), unlock })),
      );
      assert.deepEqual(opened.value, { count: 1 });
    }
  }
  await file.replace({ count: 2 }, signal);
  await rejectsWith('not_ready', open({ fs }), /sealed with a passphrase/);
  const again = await open({ fs, unlock: PASSPHRASE });
  assert.deepEqual(again.value, { count: 2 });
  assert.equal(Buffer.from(again.unseal('part', sealed)).toString(), 'secret');
});

test('a relock that fails changes nothing', async () => {
  let isFailing = false;
  const fs = new CrashFileSystem(new Map(), {
    before(operation) {
      if (isFailing && operation === 'sync') throw Object.assign(new Error('disk'), { code: 'EIO' });
    },
  });
  const file = await open({ fs });
  isFailing = true;
  await rejectsWith('not_ready', file.relock(PASSPHRASE, signal));
  isFailing = false;
  await file.replace({ count: 3 }, signal);
  assert.deepEqual((await open({ fs })).value, { count: 3 });
});

test('a file of another purpose does not open', async () => {
  const fs = new CrashFileSystem();
  await open({ fs });
  await rejectsWith('not_ready', open({ fs, purpose: 'other' }), /cannot be opened as other/);
});

test('flipped bits, truncation and appended bytes are detected', async () => {
  const fs = new CrashFileSystem();
  await (await open({ fs, unlock: PASSPHRASE })).replace({ count: 1 }, signal);
  const whole = fs.files().get(PATH) as Uint8Array;
  const damage = fc.oneof(
    fc
      .tuple(fc.nat(whole.length - 1), fc.nat(7))
      .map(([at, bit]) => whole.with(at, (whole[at] as number) ^ (1 << bit))),
    fc.nat(whole.length - 1).map((length) => whole.slice(0, length)),
    fc.uint8Array({ minLength: 1, maxLength: 9 }).map((tail) => Buffer.concat([whole, tail])),
    fc.uint8Array({ maxLength: 300 }),
  );
  const property = fc.asyncProperty(damage, async (bytes) => {
    const damaged = new CrashFileSystem(new Map([[PATH, bytes]]));
    await rejectsWith('not_ready', open({ fs: damaged, unlock: PASSPHRASE }));
    assert.deepEqual(damaged.files().get(PATH), bytes, 'the file is left unchanged');
  });
  await fc.assert(property, { numRuns: 150 });
});

test('a refusal distinguishes a damaged file from one with another key, and from one that the disk does not give', async () => {
  const fs = new CrashFileSystem();
  await open({ fs });
  const whole = fs.files().get(PATH)!;
  const refusal = async (bytes: Uint8Array, init: Partial<SealedFileInit<Document>> = {}): Promise<unknown> =>
    await open({ fs: new CrashFileSystem(new Map([[PATH, bytes]])), ...init }).then(
      () => assert.fail('it opened'),
      (error: unknown) => error,
    );
  const flipped = (at: number): Uint8Array => whole.with(at, whole[at]! ^ 1);
  for (const bytes of [
    new Uint8Array(0),
    flipped(0),
    whole.slice(0, 100),
    whole.slice(0, -1),
    flipped(whole.length - 1),
  ])
    assert.equal(isDamaged(await refusal(bytes)), true, `${bytes.length} bytes`);
  assert.equal(isDamaged(await refusal(whole, { unlock: { kek: new Uint8Array(32).fill(8) } })), false, 'another key');
  assert.equal(isDamaged(await refusal(whole, { unlock: PASSPHRASE })), false);
  assert.equal(isDamaged(await refusal(whole, { purpose: 'other' })), false);
  assert.equal(isDamaged(await refusal(flipped(60))), false, 'the key box is damaged: the key may be wrong');
  const faults: Faults = {
    before(name) {
      if (name === 'read') throw Object.assign(new Error('disk'), { code: 'EIO' });
    },
  };
  assert.equal(isDamaged(await refusal(whole, { fs: new CrashFileSystem(new Map([[PATH, whole]]), faults) })), false);
});

test('a new file in place of another one leaves it until its first write is complete', async () => {
  let isFailing = true;
  const faults: Faults = {
    before(name) {
      if (isFailing && name === 'write') throw Object.assign(new Error('disk'), { code: 'ENOSPC' });
    },
  };
  const before = Buffer.from('a file that does not open');
  const fs = new CrashFileSystem(new Map([[PATH, before]]), faults);
  const file = await SealedFile.create<Document>({
    path: PATH,
    unlock: KEK,
    purpose: 'test',
    initial: { count: 0 },
    fs,
    signal,
  });
  const sealed = file.seal('part', Buffer.from('secret'));
  await rejectsWith('storage_full', file.replace({ count: 1 }, signal));
  assert.deepEqual(fs.files(), new Map([[PATH, before]]));
  isFailing = false;
  await file.replace({ count: 2 }, signal);
  const again = await open({ fs });
  assert.deepEqual(again.value, { count: 2 });
  assert.equal(Buffer.from(again.unseal('part', sealed)).toString(), 'secret');
});

test('an older or missing file is refused if the version is known', async () => {
  const fs = new CrashFileSystem();
  const file = await open({ fs });
  const older = fs.files();
  await file.replace({ count: 1 }, signal);
  await open({ fs, version_min: 2 });
  await rejectsWith('integrity', open({ fs: new CrashFileSystem(older), version_min: 2 }), /was rolled back/);
  await rejectsWith('integrity', open({ fs: new CrashFileSystem(), version_min: 2 }), /missing/);
});

test('concurrent changes share one write, and a refused change does not affect the others', async () => {
  const fs = new CrashFileSystem();
  const file = await open({ fs });
  const before = file.version;
  const add = (): Promise<number> => file.update(({ count }) => ({ count: count + 1 }), signal);
  const refusing = file.update(() => {
    throw new Error('no room');
  }, signal);
  const adds = Promise.all(Array.from({ length: 50 }, add));
  await assert.rejects(refusing, /no room/);
  await adds;
  assert.deepEqual(file.value, { count: 50 });
  assert.ok(file.version - before <= 2, `${file.version - before} writes`);
});

test('after a power cut at any moment the file is intact and holds every acknowledged change', async () => {
  const fs = new CrashFileSystem();
  const acknowledged: { at: number; count: number }[] = [];
  const file = await open({ fs });
  acknowledged.push({ at: fs.operations, count: 0 });
  for (let count = 1; count <= 3; count++) {
    await file.replace({ count }, signal);
    acknowledged.push({ at: fs.operations, count });
  }
  let images = 0;
  for (let at = 0; at <= fs.operations; at++) {
    const least = acknowledged.findLast((each) => each.at <= at)?.count ?? -1;
    for (const image of fs.imagesAt(at, 64, Math.random)) {
      images += 1;
      const found = await open({ fs: new CrashFileSystem(image), initial: { count: -1 } });
      assert.ok(found.value.count >= least, `after ${at} operations: ${found.value.count}, acknowledged ${least}`);
    }
  }
  assert.ok(images > 50);
});

test('after a disk failure the old document stays in force and the next write succeeds', async () => {
  for (const operation of ['create', 'write', 'sync', 'rename', 'syncDir']) {
    let isFailing = false;
    const faults: Faults = {
      before(name) {
        if (isFailing && name === operation) throw Object.assign(new Error('disk'), { code: 'ENOSPC' });
      },
    };
    const fs = new CrashFileSystem(new Map(), faults);
    const file = await open({ fs });
    isFailing = true;
    await rejectsWith('storage_full', file.replace({ count: 1 }, signal));
    assert.deepEqual(file.value, { count: 0 }, operation);
    isFailing = false;
    const version = await file.replace({ count: 2 }, signal);
    assert.ok(version > 2, 'the number of the failed write is not used again');
    assert.deepEqual((await open({ fs })).value, { count: 2 });
  }
});

test('only one process can open the file, and only the file and its lock remain', async (t) => {
  const dir = await directory(t);
  const path = join(dir, 'store.sealed');
  await writeFile(`${path}.tmp`, 'left behind by a crash');
  const file = await open({ path });
  await rejectsWith('conflict', open({ path }), /another process/);
  await file.close();
  await (await open({ path })).close();
  assert.deepEqual((await readdir(dir)).toSorted(), ['store.sealed', 'store.sealed.lock']);
});

test('a separately sealed part opens only under its own name', async () => {
  const file = await open({ fs: new CrashFileSystem() });
  const sealed = file.seal('key 1', Buffer.from('secret'));
  assert.equal(Buffer.from(file.unseal('key 1', sealed)).toString(), 'secret');
  assert.throws(() => file.unseal('key 2', sealed));
  assert.notDeepEqual(file.seal('key 1', Buffer.from('secret')), sealed);
});
