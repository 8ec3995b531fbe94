/** Every set of parts that can be rolled back, and who detects it: the start, the full audit, or a witness. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { dirSource, verifyLog } from '@ron/tlog';
import { DATA, doOnce, log, Machine, nameOf, sign, use, type Image } from './testing.ts';

const FILES = { checkpoint: /^audit\/checkpoint$/, entries: /^audit\/(?!checkpoint$|vkeys$)/ } as const;
type Part = 'store' | keyof typeof FILES;
const PARTS: readonly Part[] = ['store', 'checkpoint', 'entries'];
const SUBSETS = Array.from({ length: 2 ** PARTS.length }, (_, bits) => PARTS.filter((_part, at) => (bits >> at) & 1));

const isOf = (path: string, parts: readonly Part[]): boolean =>
  parts.some((part) => part !== 'store' && FILES[part].test(path.slice(DATA.length + 1)));

/** The present state, with some parts of another. */
function putBack(now: Image, before: Image, parts: readonly Part[]): Image {
  const kept = [...now.files].filter(([path]) => !isOf(path, parts));
  const files = new Map([...kept, ...[...before.files].filter(([path]) => isOf(path, parts))]);
  return { files, store: parts.includes('store') ? before.store : now.store };
}

/** The problem that a start finds: the same one twice, without a write in between. Rejects if the vault does not open. */
async function found(image: Image): Promise<string | undefined> {
  const machine = new Machine(image);
  const { writes } = machine;
  const problems: (string | undefined)[] = [];
  for (let start = 0; start < 2; start++) {
    const vault = await machine.open();
    problems.push(vault.problem);
    assert.equal(vault.log === undefined, vault.problem !== undefined);
    await vault.close();
    if (vault.problem === undefined) return undefined;
    assert.deepEqual([machine.disk.operations, machine.writes], [0, writes], `${vault.problem}: nothing is written`);
  }
  assert.equal(problems[0], problems[1]);
  return problems[0];
}

/** The problem of a start, or the reason why the vault does not open. Nothing may be written in either case. */
async function startProblem(image: Image): Promise<string | undefined> {
  return await found(image).catch((error: Error) => error.message);
}

async function isWhole({ files }: Image): Promise<boolean> {
  const fs = new CrashFileSystem(files);
  const vkeys = Buffer.from(files.get(`${DATA}/audit/vkeys`)!)
    .toString()
    .trim()
    .split('\n');
  await using source = await dirSource(`${DATA}/audit`, fs);
  return (await verifyLog(source, vkeys, { signal: NEVER })).ok;
}

/** Two moments of one vault; the first is in the midst of work, or after a clean shutdown. */
async function moments(first: 'working' | 'closed' = 'working'): Promise<{ before: Image; now: Image }> {
  const machine = new Machine();
  let vault = await machine.open();
  await use(vault, 1);
  if (first === 'closed') {
    await vault.end(NEVER);
    await vault.close();
  }
  const before = machine.image;
  if (first === 'closed') vault = await machine.open();
  await vault.begin(NEVER);
  await use(vault, 2);
  await vault.end(NEVER);
  await vault.close();
  return { before, now: machine.image };
}

test('a rollback of the store or of the log is detected at every start; a rollback of both is not', async () => {
  for (const first of ['working', 'closed'] as const) {
    const { before, now } = await moments(first);
    for (const parts of SUBSETS) {
      const image = putBack(now, before, parts);
      const problem = await found(image);
      // With the entries kept, the rest looks like a crash before the checkpoint, unless it was a clean shutdown.
      const isCrash = parts.length === 2 && !parts.includes('entries') && first === 'working';
      const isExpected = parts.length > 0 && parts.length < PARTS.length && !isCrash;
      assert.equal(problem !== undefined, isExpected, `${first}, ${parts.join(' ')}: ${problem}`);
      // The full audit reads only the log, and detects that it is shorter than its own checkpoint.
      const isCut = parts.includes('entries') && !parts.includes('checkpoint');
      assert.equal(await isWhole(image), !isCut, `${first}, ${parts.join(' ')}: full audit`);
    }
  }
});

test('a public checkpoint that was rolled back by one is detected after a clean shutdown', async () => {
  const machine = new Machine();
  const vault = await machine.open();
  await use(vault, 1);
  const before = machine.image;
  await log(vault);
  await sign(vault);
  assert.equal(await found(putBack(machine.image, before, ['checkpoint'])), undefined, 'it looks like a crash');
  await vault.end(NEVER);
  await vault.close();
  assert.match((await found(putBack(machine.image, before, ['checkpoint'])))!, /audit\/checkpoint was rolled back/);
});

test('a public checkpoint that was rolled back by two is detected without a clean shutdown', async () => {
  const machine = new Machine();
  const vault = await machine.open();
  await use(vault, 1);
  const before = machine.image;
  for (let checkpoint = 0; checkpoint < 2; checkpoint++) {
    await log(vault);
    await sign(vault);
  }
  assert.match((await found(putBack(machine.image, before, ['checkpoint'])))!, /audit\/checkpoint was rolled back/);
  await vault.close();
});

test('entries after a clean shutdown are reported as foreign', async () => {
  const { now } = await moments();
  const machine = new Machine(now);
  const vault = await machine.open();
  await log(vault, 2);
  await vault.close();
  assert.match((await found(machine.image))!, /audit has 2 entries that were appended after the last clean shutdown/);
  const crashed = new Machine(now);
  const again = await crashed.open();
  await again.begin(NEVER);
  await log(again, 2);
  await again.close();
  assert.equal(await found(crashed.image), undefined, 'the state after a crash');
});

test('a removed part is not created again, and parts of another node are refused', async () => {
  const { now } = await moments();
  const theirs = (await moments()).now;
  const nothing: Image = { files: new Map(), store: new Map() };
  for (const parts of SUBSETS.filter(({ length }) => length > 0 && length < PARTS.length)) {
    const missing = await startProblem(putBack(now, nothing, parts));
    assert.match(missing ?? 'accepted', /rolled back|restore it|was truncated|missing/, parts.join(' '));
    const foreign = await startProblem(putBack(now, theirs, parts));
    assert.ok(foreign !== undefined, parts.join(' '));
  }
});

const HARMS: Record<string, (bytes: Buffer, other: Buffer) => Buffer> = {
  'the first byte is flipped': (bytes) => flipped(bytes, 0),
  'a byte in the middle is flipped': (bytes) => flipped(bytes, Math.floor(bytes.length / 2)),
  'it is cut in the middle': (bytes) => bytes.subarray(0, Math.floor(bytes.length / 2)),
  'it is empty': () => Buffer.alloc(0),
  'it is another one': (_, other) => other,
  'it is there twice': (bytes) => Buffer.concat([bytes, bytes]),
  'much follows': (bytes) => Buffer.concat([bytes, Buffer.alloc(1 << 20)]),
};

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at]! ^= 1;
  return copy;
}

test('any modification of a file of the log is detected or harmless', async () => {
  const { now } = await moments();
  const files = [...now.files.keys()].filter((path) => isOf(path, PARTS));
  assert.ok(files.length >= 3, files.join(' '));
  for (const [at, path] of files.entries()) {
    const name = path.slice(DATA.length + 1);
    const other = Buffer.from(now.files.get(files[(at + 1) % files.length]!)!);
    for (const [harm, change] of Object.entries(HARMS)) {
      const changed = new Map(now.files).set(path, change(Buffer.from(now.files.get(path)!), other));
      const image = { ...now, files: changed };
      const problem = await startProblem(image);
      if (problem === undefined) await assertNoHarm(image, `${name}: ${harm}`);
      if (isOf(path, ['checkpoint'])) assert.match(problem ?? 'nothing', /checkpoint/, `${name}: ${harm}`);
    }
  }
});

/** Asserts that everything signed and completed is there, and that the full audit passes. */
async function assertNoHarm(image: Image, what: string): Promise<void> {
  const machine = new Machine(image);
  const vault = await machine.open();
  for (const id of ['op 1', 'op 2']) assert.equal(await doOnce(vault, id, 'again'), id, what);
  assert.equal(vault.log!.size, vault.log!.checkpoint!.size, what);
  await vault.close();
  assert.ok(await isWhole(machine.image), what);
}

test('no nonce repeats after any rollback', async () => {
  const machine = new Machine();
  const vault = await machine.open();
  await use(vault, 1);
  const before = machine.image;
  const { handle } = vault.registry.index.get(nameOf(1))!.versions[0]!;
  const nonces = new Set<string>();
  const wrapOn = async (image: Image): Promise<void> => {
    const restored = await new Machine(image).open();
    for (let uses = 0; uses < 3; uses++) {
      const wrapped = await restored.backend.wrap(handle!, new Uint8Array(16), new Uint8Array(0), NEVER);
      const nonce = Buffer.from(wrapped.subarray(1, 13)).toString('hex');
      assert.ok(!nonces.has(nonce), 'a nonce repeats');
      nonces.add(nonce);
    }
    await restored.close();
  };
  await vault.close();
  // Repeated full rollbacks: the counter is the same each time, and no part can detect it.
  for (let times = 0; times < 8; times++) await wrapOn(before);
  assert.equal(nonces.size, 24);
});
