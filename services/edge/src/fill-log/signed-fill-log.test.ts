import assert from 'node:assert/strict';
import { cp, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { RonError, sched } from '@ron/kernel';
import { realFileSystem as fs } from '@ron/log';
import { FaultyDisk } from '@ron/log/testing';
import { tempDirFor, eventually } from '@ron/testkit';
import { checkEntryProof, dirSource, verifyLog, type Audit } from '@ron/tlog';
import { ownKey, type FillKey, type FillKeySource } from './fill-key.ts';
import { CHECKPOINT_MS, type SignedFillLog } from './signed-fill-log.ts';
import { entriesOf, openTestLog } from './testing.ts';

const { signal } = new AbortController();
const keyFor = (dir: string): FillKeySource => ownKey({ dir, fs, signal });

/** A full audit, as `ron audit verify DIR` does it. */
async function audit(dir: string): Promise<Audit> {
  const vkeys = (await readFile(join(dir, 'vkeys'), 'utf8')).trim().split('\n');
  await using source = await dirSource(dir);
  return await verifyLog(source, vkeys, { signal });
}

async function signed(log: SignedFillLog): Promise<void> {
  await eventually('a checkpoint covers all entries', () => {
    log.work();
    return log.unsigned === 0;
  });
}

test('entries are durable, signed, proven and verified; a restart continues the log', async (t) => {
  const root = tempDirFor(t);
  {
    const { log, dir } = await openTestLog(root);
    await using _ = log;
    assert.equal(await log.append(entriesOf('a', 'b'), signal), 0);
    assert.equal(await log.proof(1), undefined, 'no checkpoint covers it yet');
    await signed(log);
    const proof = await log.proof(1);
    const { entry } = checkEntryProof(JSON.stringify({ proof }), log.keys!.vkeys);
    assert.deepEqual(entry, Buffer.from(entriesOf('b')[0]!));
    const result = await audit(dir);
    assert.ok(result.ok);
    assert.equal(result.checkpoint.size, 2);
  }
  const { log, dir } = await openTestLog(root);
  assert.equal(await log.append(entriesOf('c'), signal), 2);
  await log[Symbol.asyncDispose]();
  const result = await audit(dir);
  assert.ok(result.ok && result.unsigned === 0, 'the close signs the last entries');
  assert.equal(result.checkpoint.size, 3);
});

test('an older copy of the log, an absent one and a changed one refuse appends and explain why', async (t) => {
  const root = tempDirFor(t);
  const at = (name: string): string => join(root, name);
  await (await openTestLog(root)).log[Symbol.asyncDispose]();
  const write = async (name: string): Promise<void> => {
    const { log } = await openTestLog(root);
    await log.append(entriesOf(name), signal);
    await log[Symbol.asyncDispose]();
  };
  await write('a');
  await cp(at('fills'), at('older'), { recursive: true });
  await write('b');
  await rename(at('fills'), at('newest'));
  const refusal = async (problem: RegExp): Promise<void> => {
    const { log, warnings } = await openTestLog(root);
    await using _ = log;
    assert.match(log.problem ?? '', problem);
    assert.equal(log.warning, log.problem);
    await assert.rejects(log.append(entriesOf('c'), signal), { code: 'not_ready' });
    assert.equal(warnings.length, 1);
  };
  await cp(at('older'), at('fills'), { recursive: true });
  await refusal(/truncated: it has only 1 entries, but 2 were signed according to .*fills\.checkpoint/);
  await rm(at('fills'), { recursive: true });
  await refusal(/the log is not the one that was signed/);
  await rm(at('fills'), { recursive: true });
  await cp(at('newest'), at('fills'), { recursive: true });
  const file = await open(join(at('fills'), 'entries'), 'r+');
  await file.write(Buffer.from('X'), 0, 1, 40);
  await file.close();
  await refusal(/fill log cannot be used/);
  // The documented way out begins another log.
  await rename(at('fills'), at('damaged'));
  await rm(at('fills.checkpoint'));
  const { log } = await openTestLog(root);
  await using _ = log;
  assert.equal(log.problem, undefined);
  assert.equal(await log.append(entriesOf('c'), signal), 0);
});

test('a torn append is cut off, and its index is used again', async (t) => {
  const root = tempDirFor(t);
  const first = await openTestLog(root);
  await first.log.append(entriesOf('a'), signal);
  await first.log[Symbol.asyncDispose]();
  const path = join(first.dir, 'entries');
  const bytes = await readFile(path);
  await writeFile(path, Buffer.concat([bytes, bytes.subarray(0, bytes.length - 3)]));
  const { log, warnings } = await openTestLog(root);
  await using _ = log;
  assert.match(warnings[0]!, /^cut \d+ bytes of an interrupted write/);
  assert.equal(await log.append(entriesOf('b'), signal), 1);
});

test('without a key yet, appends work; a slow or absent signer delays checkpoints and never appends', async (t) => {
  const root = tempDirFor(t);
  const calls: string[] = [];
  let mode: 'away' | 'hangs' | 'works' = 'away';
  let real: FillKey | undefined;
  const key: FillKeySource = {
    load: async () => undefined,
    create: async () => {
      calls.push('create');
      if (mode === 'away') throw new RonError('unreachable', 'kms is away');
      real ??= (await keyFor(root).load())!;
      return {
        spki: real.spki,
        sign: async (message, aborted) => {
          calls.push('sign');
          if (mode === 'hangs')
            await new Promise((_, reject) => aborted.addEventListener('abort', () => reject(aborted.reason)));
          return await real!.sign(message, aborted);
        },
      };
    },
  };
  const { log, warnings, dir } = await openTestLog(root, { key, checkpoint_ms: 50 });
  await log.append(entriesOf('a'), signal);
  await eventually('a checkpoint failed', () => {
    log.work();
    return warnings.length > 0;
  });
  assert.equal(log.problem, undefined);
  assert.deepEqual(log.keys?.vkeys, []);
  mode = 'hangs';
  await eventually('kms hangs', () => {
    log.work();
    return calls.includes('sign');
  });
  assert.equal(await log.append(entriesOf('b'), signal), 1, 'an append does not wait for the signature');
  mode = 'works';
  await signed(log);
  assert.deepEqual(warnings, ['failed to sign a checkpoint of the fill log'], 'an outage is reported once');
  await log[Symbol.asyncDispose]();
  assert.ok((await audit(dir)).ok);
});

test('a late checkpoint closes the gate, with the cause', async (t) => {
  const root = tempDirFor(t);
  const key: FillKeySource = {
    load: async () => undefined,
    create: () => Promise.reject(new RonError('unreachable', 'kms is away')),
  };
  const { log } = await openTestLog(root, { key });
  await using _ = log;
  await log.append(entriesOf('a'), signal);
  log.work();
  const real = sched.now_ms.bind(sched);
  let passed_ms = 15_000;
  t.mock.method(sched, 'now_ms', () => real() + passed_ms);
  await log.append(entriesOf('b'), signal);
  passed_ms = 20_000;
  assert.match(log.warning ?? '', /no signed checkpoint for 20 s/, 'since the first entry without a checkpoint');
  await eventually('the gate is closed', () => /no signed checkpoint for \d+ s: kms is away/.test(log.warning ?? ''));
  assert.equal(log.problem, undefined, 'fills are still cached');
});

test('a full disk refuses the append; the next one after it has room succeeds with the same index', async (t) => {
  const root = tempDirFor(t);
  const disk = new FaultyDisk();
  const { log, dir } = await openTestLog(root, { fs: disk });
  await log.append(entriesOf('a'), signal);
  disk.fail('entries', 'ENOSPC');
  await assert.rejects(log.append(entriesOf('b'), signal), { code: 'storage_full' });
  assert.match(log.warning!, /^fills are not cached: /);
  assert.equal(log.problem, log.warning, 'fills are not sent to a full disk');
  disk.mend();
  assert.equal(await log.append(entriesOf('b'), signal), 1);
  assert.equal(log.warning, undefined);
  await log[Symbol.asyncDispose]();
  assert.ok((await audit(dir)).ok);
});

test('after a full disk has room, the log accepts fills again without one', async (t) => {
  const root = tempDirFor(t);
  const disk = new FaultyDisk();
  const key: FillKeySource = {
    load: async () => undefined,
    create: () => Promise.reject(new RonError('unreachable', 'kms is away')),
  };
  const { log, warnings } = await openTestLog(root, { fs: disk, key });
  await using _ = log;
  disk.fail('entries', 'ENOSPC');
  await assert.rejects(log.append(entriesOf('a'), signal), { code: 'storage_full' });
  assert.ok(log.isWorkPending, 'the task goes on calling');
  const real = sched.now_ms.bind(sched);
  let passed_ms = 0;
  t.mock.method(sched, 'now_ms', () => real() + passed_ms);
  const recovered = async (): Promise<boolean> => {
    passed_ms += CHECKPOINT_MS;
    log.work();
    return log.problem === undefined;
  };
  for (let round = 0; round < 3; round++) assert.ok(!(await recovered()));
  disk.mend();
  await eventually('the log is usable', recovered);
  assert.deepEqual(warnings.slice(0, 1), ['failed to append to the fill log'], 'reported once');
  assert.equal(await log.append(entriesOf('a'), signal), 1, 'after one entry that states the end of the outage');
});

test('a disk that does not respond is reported while the append waits', async (t) => {
  const root = tempDirFor(t);
  const disk = new FaultyDisk();
  const { log } = await openTestLog(root, { fs: disk });
  await using _ = log;
  disk.hold('entries');
  const waiting = log.append(entriesOf('a'), signal);
  const real = sched.now_ms.bind(sched);
  const mocked = t.mock.method(sched, 'now_ms', () => real() + 3000);
  assert.equal(log.warning, 'the disk of the fill log does not respond');
  mocked.mock.restore();
  disk.mend();
  assert.equal(await waiting, 0);
  assert.equal(log.warning, undefined);
});

test('above its bound the log removes its older half, announces it and stays verifiable', async (t) => {
  const root = tempDirFor(t);
  const { log, dir } = await openTestLog(root, { bytes_max: 300_000 });
  const names = Array.from({ length: 256 }, (_each, at) => `${at}`);
  for (let at = 0; at < 4; at++) await log.append(entriesOf(...names), signal);
  await eventually('it is pruned', () => {
    log.work();
    return log.served!.first > 0 && log.bytes <= 300_000;
  });
  assert.equal(log.served!.first, 512);
  await assert.rejects(log.proof(511), { code: 'not_found' });
  assert.ok((await log.proof(512)) !== undefined);
  await log[Symbol.asyncDispose]();
  const result = await audit(dir);
  assert.ok(result.ok && result.first === 512);
});

test('a log above twice a lowered bound is pruned without a fill', async (t) => {
  const root = tempDirFor(t);
  const names = Array.from({ length: 256 }, (_each, at) => `${at}`);
  {
    const { log } = await openTestLog(root);
    for (let at = 0; at < 4; at++) await log.append(entriesOf(...names), signal);
    await log[Symbol.asyncDispose]();
  }
  const { log, dir } = await openTestLog(root, { bytes_max: 120_000 });
  assert.ok(log.bytes > 2 * 120_000 && log.unsigned === 0);
  const real = sched.now_ms.bind(sched);
  let passed_ms = 0;
  t.mock.method(sched, 'now_ms', () => real() + passed_ms);
  await eventually('it is within its bound', () => {
    if (log.isWorkPending) passed_ms += CHECKPOINT_MS;
    log.work();
    return log.bytes <= 120_000;
  });
  await log.append(entriesOf('next'), signal);
  await log[Symbol.asyncDispose]();
  assert.ok((await audit(dir)).ok);
});

test('a bound below the size of two bundles is kept, because one is removed at a time', async (t) => {
  const { log } = await openTestLog(tempDirFor(t), { bytes_max: 100_000 });
  await using _ = log;
  const names = Array.from({ length: 16 }, (_each, at) => `${at}`);
  const real = sched.now_ms.bind(sched);
  let passed_ms = 0;
  t.mock.method(sched, 'now_ms', () => real() + passed_ms);
  // 256 entries have more than 100 000 bytes, 512 have more than twice that.
  for (let at = 0; at < 64; at++) {
    await log.append(entriesOf(...names), signal);
    await eventually('no whole bundle is above the bound', () => {
      passed_ms += CHECKPOINT_MS;
      log.work();
      return log.bytes <= 100_000 || log.size - log.served!.first < 256;
    });
  }
  assert.ok(log.served!.first >= 768);
});

test('if nothing can be pruned, appends end at twice the bound', async (t) => {
  const root = tempDirFor(t);
  const key: FillKeySource = {
    load: async () => undefined,
    create: () => Promise.reject(new RonError('unreachable', 'kms is away')),
  };
  const { log } = await openTestLog(root, { key, bytes_max: 100_000 });
  await using _ = log;
  const names = Array.from({ length: 256 }, (_each, at) => `${at}`);
  const until = async (): Promise<void> => {
    for (let at = 0; at < 10; at++) await log.append(entriesOf(...names), signal);
  };
  await assert.rejects(until(), { code: 'storage_full' });
  assert.ok(log.bytes < 400_000);
});

test('a second process on the directory fails the start', async (t) => {
  const root = tempDirFor(t);
  const { log } = await openTestLog(root);
  await using _ = log;
  await mkdir(join(root, 'other'));
  await assert.rejects(openTestLog(root), { code: 'conflict' });
});
