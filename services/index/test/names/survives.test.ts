/** Acknowledged changes survive the loss of the database, of its thread and of the process. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { appendFile, cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { eventually, tempDir } from '@ron/testkit';
import { dirSource, verifyLog } from '@ron/tlog';
import { checkpointSigner } from '../../src/node-key.ts';
import { nameSigner, valueOf } from '../../src/publish/testing.ts';
import { ALICE, openNode, signal, type NamesNode } from './support.ts';

const alice = nameSigner();
const bob = nameSigner();

const isDatabase = (name: string): boolean => name.startsWith('index.db');

async function removeDatabase(dir: string): Promise<void> {
  for (const name of await readdir(dir)) if (isDatabase(name)) await rm(join(dir, name));
}

async function copyDatabase(from: string, to: string): Promise<void> {
  await removeDatabase(to);
  for (const name of await readdir(from)) if (isDatabase(name)) await cp(join(from, name), join(to, name));
}

async function withNode<T>(dir: string, use: (node: NamesNode) => Promise<T>): Promise<T> {
  await using node = await openNode(dir);
  return await use(node);
}

/** Trust, a pin, a name with two records, a name that another node forked. */
async function fill(node: NamesNode) {
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  const [x, y] = [bob.record('forked'), bob.record('forked')];
  await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
  await node.names.setTrust({ prefix: 'forked', key: bob.key }, ALICE, signal);
  await node.names.setPin('name:a', true, ALICE, signal);
  await node.publish(one);
  await node.publish(two);
  assert.ok((await node.names.adopt(bob.key, 'forked', [valueOf(x), valueOf(y)], signal))?.rival);
  return { one, two };
}

async function requireFilled(node: NamesNode, seq = 2): Promise<void> {
  assert.equal((await node.store.name(alice.key, 'a'))?.seq, seq);
  assert.equal((await node.store.history(alice.key, 'a', 10)).at(-1)?.seq, 1);
  assert.notEqual((await node.store.name(bob.key, 'forked'))?.rival, undefined, 'both records of a fork are kept');
  assert.deepEqual([node.names.keyFor('a'), node.names.keyFor('forked')], [alice.key, bob.key]);
  assert.deepEqual([...node.names.pins], ['name:a']);
  assert.equal(node.store.applied.size, node.names.log?.size);
}

test('a lost database is filled from the log, and an outdated one completed: no replay succeeds', async () => {
  await using temp = await tempDir();
  await using old = await tempDir();
  const dir = temp.path;
  const { one, two } = await withNode(dir, fill);
  await copyDatabase(dir, old.path);
  const epoch = await withNode(dir, async ({ store }) => store.epoch);
  const three = alice.record('a', { after: two });
  await withNode(dir, (node) => node.publish(three));

  await removeDatabase(dir);
  await withNode(dir, async (node) => {
    await requireFilled(node, 3);
    await assert.rejects(node.publish(two), { code: 'conflict' });
    assert.equal((await node.publish(three)).isNew, false);
  });

  await copyDatabase(old.path, dir);
  await withNode(dir, async (node) => {
    await requireFilled(node, 3);
    assert.notEqual(node.store.epoch, epoch, 'storage announces its objects again: the old database may lack some');
    for (const replayed of [one, two]) await assert.rejects(node.publish(replayed), { code: 'conflict' });
    assert.equal((await node.names.adopt(alice.key, 'a', [valueOf(two)], signal))?.seq, 3);
    assert.equal(await node.names.accepts(alice.key, 'a', valueOf(two)), undefined);
    assert.deepEqual(node.warnings, []);
  });
});

test('an older log, or that of another node, stops changes and undoes nothing; the newest log ends it', async () => {
  await using temp = await tempDir();
  await using other = await tempDir();
  await using kept = await tempDir();
  const dir = temp.path;
  const log = join(dir, 'name-log');
  const setLog = async (from: string): Promise<void> => {
    await rm(log, { recursive: true });
    await cp(from, log, { recursive: true });
  };
  const { two } = await withNode(dir, fill);
  await cp(log, join(kept.path, 'old'), { recursive: true });
  const three = alice.record('a', { after: two });
  await withNode(dir, async (node) => {
    await node.names.removeTrust('forked', ALICE, signal);
    await node.publish(three);
  });
  await cp(log, join(kept.path, 'new'), { recursive: true });
  await copyDatabase(dir, kept.path);

  const requireStopped = async (node: NamesNode): Promise<void> => {
    assert.match(node.names.problem ?? '', /lacks entries that the database has applied .*restore the newest name-log/);
    const refusal = { code: 'not_ready', message: /restore the newest/ };
    await assert.rejects(node.publish(alice.record('a', { after: three })), refusal);
    await assert.rejects(node.names.setTrust({ prefix: 'x', key: bob.key }, ALICE, signal), refusal);
    await assert.rejects(node.names.setPin('name:b', true, ALICE, signal), refusal);
    assert.equal(node.names.keyFor('forked'), alice.key, 'the removed trust does not come back');
    assert.equal((await node.store.name(alice.key, 'a'))?.seq, 3);
  };
  await setLog(join(kept.path, 'old'));
  for (let start = 0; start < 2; start += 1) await withNode(dir, requireStopped);
  await setLog(join(kept.path, 'new'));
  await withNode(dir, async (node) => {
    assert.equal(node.names.problem, undefined);
    await node.publish(alice.record('a', { after: three }));
  });

  // A database of another node.
  await withNode(other.path, (node) => node.publish(bob.record('x')));
  await copyDatabase(other.path, dir);
  await withNode(dir, async (node) => assert.match(node.names.problem ?? '', /lacks entries/));
  await removeDatabase(dir);
  await withNode(dir, async (node) => assert.equal((await node.store.name(alice.key, 'a'))?.seq, 4));
});

test('a log that was moved away begins anew under another origin, with names, trust and pins', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const log = join(dir, 'name-log');
  const originIn = (): Promise<string> => readFile(join(log, 'origin'), 'utf8');
  const { two } = await withNode(dir, fill);
  const origins = [await originIn()];
  await rm(log, { recursive: true });
  await withNode(dir, async (node) => {
    await requireFilled(node);
    assert.equal(node.names.problem, undefined);
    assert.match(node.warnings.join(), /absent: a new one begins/);
    const first = Buffer.from(await node.names.log!.entry(0)).toString();
    assert.match(first, /"kind":"admin","action":"replaces the lost name log of 6 entries, last leaf [0-9a-f]{64}"/);
  });
  origins.push(await originIn());
  await withNode(dir, async (node) => assert.deepEqual(node.warnings, [], 'once'));
  await removeDatabase(dir);
  await withNode(dir, async (node) => {
    assert.deepEqual([node.names.keyFor('a'), node.names.keyFor('forked')], [alice.key, bob.key]);
    assert.deepEqual([...node.names.pins], ['name:a']);
    assert.equal((await node.publish(alice.record('a', { after: two }))).name.seq, 3);
  });
  await removeDatabase(dir);
  await rm(log, { recursive: true });
  await withNode(dir, (node) => node.publish(alice.record('b')));
  origins.push(await originIn());
  assert.equal(new Set(origins).size, 3, 'the node key never signs two logs under one name');
});

test('a publish survives a writer thread that dies three times; a caller that timed out repeats it', async () => {
  await using temp = await tempDir();
  const module = new URL('./crashing-thread.ts', import.meta.url);
  const record = alice.record('crash');
  {
    await using node = await openNode(temp.path, { storeInit: { module } });
    // On a busy machine a new thread starts later than the deadline of a call.
    const isDone = async (): Promise<boolean> =>
      await node.publish(record).then(
        () => true,
        (error: unknown) => (isRonError(error, 'timeout') ? false : Promise.reject(error as Error)),
      );
    await eventually('the publish succeeds', isDone);
    assert.equal(node.names.log?.size, 1, 'repetitions leave no entry');
    assert.equal((await readdir(temp.path)).filter((name) => name.startsWith('crashed-')).length, 3);
  }
  await using node = await openNode(temp.path);
  assert.equal((await node.store.name(alice.key, 'crash'))?.seq, 1);
});

test('a database in memory that its thread took along is filled from the log while the node runs', async () => {
  const module = new URL('../store/faulty-thread.ts', import.meta.url);
  await using node = await openNode(undefined, { storeInit: { module } });
  const { two } = await fill(node);
  const { epoch } = node.store;
  await node.store.saveCursor('crash', Uint8Array.of(1)).catch(() => undefined);
  await eventually(
    'it is filled again',
    () => node.store.epoch !== epoch && node.store.applied.size === node.names.log?.size,
  );
  await requireFilled(node);
  assert.equal(node.store.problem, undefined);
  assert.equal((await node.publish(alice.record('a', { after: two }))).name.seq, 3);
});

test('a record that the disk changed is not returned; names are refused until the database is filled again', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const { two } = await withNode(dir, fill);
  {
    using db = new DatabaseSync(join(dir, 'index.db'));
    const changed = Buffer.from(two.record);
    changed[60]! ^= 1;
    assert.equal(db.prepare('UPDATE name SET record = ? WHERE hash = ?').run(changed, two.hash).changes, 1);
  }
  await using node = await openNode(dir, { isRunning: false });
  const read = () => node.store.name(alice.key, 'a');
  await assert.rejects(read(), { code: 'integrity' });
  await assert.rejects(read(), { code: 'not_ready' });
  await eventually('it is replaced', () => node.store.applied.size === 0);
  await assert.rejects(read(), { code: 'not_ready' });
  const stop = new AbortController();
  const task = node.names.run(stop.signal).catch(() => undefined);
  await eventually('it is filled', () => node.store.problem === undefined);
  assert.equal((await read())?.seq, 2);
  stop.abort();
  await task;
});

test('a damaged log stops publishing, not resolving; the database keeps its state', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const { two } = await withNode(dir, fill);
  const file = join(dir, 'name-log', 'entries');
  const bytes = await readFile(file);
  await writeFile(file, bytes.subarray(0, -20));
  await withNode(dir, async (node) => {
    assert.match(node.names.problem ?? '', /name log cannot be used: .*truncated/);
    await assert.rejects(node.publish(alice.record('a', { after: two })), { code: 'not_ready', message: /truncated/ });
    await assert.rejects(node.names.setTrust({ prefix: 'b', key: alice.key }, ALICE, signal), { code: 'not_ready' });
    assert.equal(node.names.keyFor('a'), alice.key);
    const three = alice.record('a', { after: two });
    assert.equal((await node.names.adopt(alice.key, 'a', [valueOf(three)], signal))?.seq, 3);
    const rival = alice.record('a', { after: two });
    assert.ok(
      (await node.names.adopt(alice.key, 'a', [valueOf(rival)], signal))?.rival,
      'a conflict is still reported',
    );
  });
  // Garbage behind the last entry is the rest of an interrupted write.
  await writeFile(file, bytes);
  await appendFile(file, Buffer.alloc(100, 1));
  await withNode(dir, async (node) => {
    assert.equal(node.names.problem, undefined);
    assert.match(node.warnings.join(), /cut 100 bytes/);
  });
});

const SCRIPT = `
  import { openNode } from ${JSON.stringify(import.meta.resolve('./support.ts'))};
  import { nameSigner } from ${JSON.stringify(import.meta.resolve('../../src/publish/testing.ts'))};
  const node = await openNode(process.argv[1]);
  const alice = nameSigner();
  const publish = async (label) => {
    for (let after; ; ) {
      const record = alice.record(label, { after });
      await node.publish(record);
      process.stdout.write(alice.key + ' ' + label + ' ' + record.seq + '\\n');
      after = record;
    }
  };
  await Promise.all(['a', 'b', 'c', 'd'].map(publish));`;

/** Publishes in another process until it has acknowledged `lines` records, and kills it. */
async function killAfter(dir: string, lines: number): Promise<string[]> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', SCRIPT, '--', dir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<void>((resolve) => void child.once('exit', () => resolve()));
  const seen: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    seen.push(line);
    if (seen.length === lines) child.kill('SIGKILL');
  }
  await ended;
  return seen;
}

test('kill -9 loses no acknowledged publish, with and without its database', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  // Without its database, the node has only the log.
  const acknowledged = await killAfter(dir, 40);
  await removeDatabase(dir);
  acknowledged.push(...(await killAfter(dir, 20)));
  const { vkey } = await withNode(dir, async ({ store, key: node_key }) => {
    for (const line of acknowledged) {
      const [key = '', label = '', seq] = line.split(' ');
      assert.ok((await store.name(key, label))!.seq >= Number(seq), line);
    }
    const origin = await readFile(join(dir, 'name-log', 'origin'), 'utf8');
    return checkpointSigner(origin, node_key);
  });
  await using source = await dirSource(join(dir, 'name-log'));
  const audit = await verifyLog(source, [vkey], { signal });
  assert.ok(audit.ok, JSON.stringify(audit));
});
