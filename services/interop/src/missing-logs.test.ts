/** A lost directory of the spool or the receipts is reported, at every start until the operator accepts it. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { realFileSystem, type FileSystem } from '@ron/log';
import { FaultyDisk } from '@ron/log/testing';
import { tempDirFor } from '@ron/testkit';
import { MissingLogs } from './missing-logs.ts';

interface Started {
  readonly missing: MissingLogs;
  readonly reported: readonly string[];
  readonly warnings: readonly string[];
}

/** As a start does it: the logs create their directories. */
async function start(dir: string, fs: FileSystem = realFileSystem): Promise<Started> {
  const reported: string[] = [];
  const warnings: string[] = [];
  const missing = await MissingLogs.open({
    dir,
    fs,
    onMissing: (problem) => void reported.push(problem),
    warn: (message) => void warnings.push(message),
  });
  for (const log of ['spool', 'receipts']) await mkdir(join(dir, log, 'segments'), { recursive: true });
  await missing.record();
  return { missing, reported, warnings };
}

test('the first start and a restart report nothing', async (t) => {
  const dir = tempDirFor(t);
  for (let at = 0; at < 2; at++) {
    const { missing, reported } = await start(dir);
    assert.deepEqual([reported, missing.problem('spool'), missing.problem('receipts')], [[], undefined, undefined]);
  }
});

for (const [log, other] of [
  ['spool', 'receipts'],
  ['receipts', 'spool'],
] as const) {
  test(`a lost directory ${log} is reported at each start, until the operator deletes the file`, async (t) => {
    const dir = tempDirFor(t);
    await start(dir);
    await rename(join(dir, log), join(dir, 'away'));
    for (let at = 0; at < 2; at++) {
      const { missing, reported } = await start(dir);
      assert.match(missing.problem(log)!, new RegExp(`^the directory ${log} was missing at a start`));
      assert.equal(missing.problem(other), undefined);
      assert.deepEqual(reported, [missing.problem(log)]);
    }
    await rm(join(dir, log), { recursive: true });
    await rename(join(dir, 'away'), join(dir, log));
    await rm(join(dir, 'logs'));
    assert.deepEqual((await start(dir)).reported, []);
    assert.deepEqual((await start(dir)).reported, []);
  });
}

test('a crash after the directory was created again hides nothing', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'spool'), { recursive: true });
  await MissingLogs.open({ dir, fs: realFileSystem, onMissing: () => undefined, warn: () => undefined });
  await mkdir(join(dir, 'spool', 'segments'), { recursive: true });
  const { reported } = await start(dir);
  assert.equal(reported.length, 1);
});

test('an emptied directory is a lost one', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'spool', 'segments'), { recursive: true });
  assert.equal((await start(dir)).reported.length, 1);
});

test('a disk that cannot be written does not fail the start', async (t) => {
  const dir = tempDirFor(t);
  const disk = new FaultyDisk();
  disk.fail('logs', 'ENOSPC');
  const { reported, warnings } = await start(dir, disk);
  assert.deepEqual([reported, warnings.length], [[], 1]);
  assert.match(warnings[0]!, /failed to write .*logs/);
  disk.mend();
  await start(dir, disk);
  assert.equal(await readFile(join(dir, 'logs'), 'utf8'), 'spool kept\nreceipts kept\n');
  assert.deepEqual((await readdir(dir)).toSorted(), ['logs', 'receipts', 'spool']);
});

/** A disk on which the next `count` reads of the file `logs` fail. */
function unreadable(count: number): FileSystem {
  let left = count;
  const open: FileSystem['open'] = async (path, access) => {
    const file = await realFileSystem.open(path, access);
    if (!path.endsWith('/logs')) return file;
    const read: typeof file.read = async (...at) => {
      if (left-- > 0) throw Object.assign(new Error('EIO'), { code: 'EIO' });
      return await file.read(...at);
    };
    return { ...file, read, size: () => file.size(), close: () => file.close() };
  };
  return { ...realFileSystem, open };
}

for (const failures of [1, 2, Infinity])
  test(`a start at which ${failures} reads of the file fail does not forget a loss`, async (t) => {
    const dir = tempDirFor(t);
    await start(dir);
    await rm(join(dir, 'spool'), { recursive: true });
    await start(dir);
    const before = await readFile(join(dir, 'logs'), 'utf8');
    await start(dir, unreadable(failures));
    assert.equal(await readFile(join(dir, 'logs'), 'utf8'), before);
    assert.equal((await start(dir)).reported.length, 1);
  });

test('a directory that is lost while the file cannot be read is reported, and recorded if a later read succeeds', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'receipts'), { recursive: true });
  const { reported, missing } = await start(dir, unreadable(1));
  assert.deepEqual(reported, [missing.problem('receipts')]);
  assert.equal((await start(dir)).reported.length, 1);
});
