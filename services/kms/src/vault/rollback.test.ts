/** Every set of parts that can be rolled back, and who detects it: the start, the full audit, or a witness. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { dirSource, verifyLog } from '@ron/tlog';
import { DATA, doOnce, log, openOn, sign, use } from './testing.ts';

type Image = ReadonlyMap<string, Uint8Array>;

const PARTS = {
  anchor: /^anchor$/,
  custody: /^custody$/,
  index: /^index$/,
  checkpoint: /^audit\/checkpoint$/,
  log: /^audit\/(?!checkpoint$|vkeys$)/,
  ops: /^ops\//,
} as const;
type Part = keyof typeof PARTS;
const NAMES = Object.keys(PARTS) as Part[];
const SUBSETS = Array.from({ length: 2 ** NAMES.length }, (_, bits) => NAMES.filter((_name, at) => (bits >> at) & 1));

const isOf = (path: string, parts: readonly Part[]): boolean =>
  parts.some((part) => PARTS[part].test(path.slice(DATA.length + 1)));

/** The current disk, with some parts rolled back. */
function putBack(now: Image, before: Image, parts: readonly Part[]): Map<string, Uint8Array> {
  const kept = [...now].filter(([path]) => !isOf(path, parts));
  return new Map([...kept, ...[...before].filter(([path]) => isOf(path, parts))]);
}

/** The problem that a start finds: the same one twice, without a write in between. Rejects if the vault does not open. */
async function found(image: Image): Promise<string | undefined> {
  const disk = new CrashFileSystem(image);
  const problems: (string | undefined)[] = [];
  for (let start = 0; start < 2; start++) {
    const vault = await openOn(disk);
    problems.push(vault.problem);
    assert.equal(vault.log === undefined, vault.problem !== undefined);
    await vault.close();
    if (vault.problem === undefined) return undefined;
    assert.equal(disk.operations, 0, `${vault.problem}: nothing is written`);
  }
  assert.equal(problems[0], problems[1]);
  return problems[0];
}

async function isWhole(image: Image): Promise<boolean> {
  const fs = new CrashFileSystem(image);
  const vkeys = Buffer.from(image.get(`${DATA}/audit/vkeys`)!)
    .toString()
    .trim()
    .split('\n');
  await using source = await dirSource(`${DATA}/audit`, fs);
  return (await verifyLog(source, vkeys, { signal: NEVER })).ok;
}

/** Two moments of one vault. */
async function moments(between: 'everything' | 'signatures'): Promise<{ before: Image; now: Image }> {
  const disk = new CrashFileSystem();
  const vault = await openOn(disk);
  await use(vault, 'first');
  const before = disk.files();
  if (between === 'everything') await use(vault, 'second');
  for (let checkpoints = 0; checkpoints < 2; checkpoints++) {
    await log(vault, 2);
    await sign(vault);
  }
  await vault.end(NEVER);
  await vault.close();
  return { before, now: disk.files() };
}

/** Every part that records something was rolled back, so no other part can detect it: it looks like a crash. */
const isForgotten = (parts: readonly Part[], changed: readonly Part[]): boolean =>
  changed.every((part) => part === 'log' || parts.includes(part));

test('a partial rollback is detected at every start and nothing is written; a full rollback is not detected', async () => {
  const { before, now } = await moments('everything');
  for (const parts of SUBSETS) {
    const image = putBack(now, before, parts);
    const problem = await found(image);
    const isExpected = parts.length > 0 && !isForgotten(parts, NAMES);
    assert.equal(problem !== undefined, isExpected, `${parts.join(' ')}: ${problem}`);
    // The full audit reads only the log, and detects that it is shorter than its own checkpoint.
    const isCut = parts.includes('log') && !parts.includes('checkpoint');
    assert.equal(await isWhole(image), !isCut, `${parts.join(' ')}: full audit`);
  }
});

test('the same holds for the changed parts if only signatures were made in between', async () => {
  const { before, now } = await moments('signatures');
  const changed = ['anchor', 'checkpoint', 'log', 'ops'] as const;
  for (const parts of SUBSETS.filter((each) => each.every((part) => (changed as readonly Part[]).includes(part)))) {
    const isExpected = parts.length > 0 && !isForgotten(parts, changed);
    const problem = await found(putBack(now, before, parts));
    assert.equal(problem !== undefined, isExpected, `${parts.join(' ')}: ${problem}`);
  }
});

test('entries after a clean shutdown are reported as foreign', async () => {
  const { now } = await moments('signatures');
  const disk = new CrashFileSystem(now);
  const vault = await openOn(disk);
  await log(vault, 2);
  await vault.close();
  assert.match((await found(disk.files()))!, /audit has 2 entries that were appended after the last clean shutdown/);
  const crashed = new CrashFileSystem(now);
  const again = await openOn(crashed);
  await again.begin(NEVER);
  await log(again, 2);
  await again.close();
  assert.equal(await found(crashed.files()), undefined, 'the state after a crash');
});

test('a removed part is not created again', async () => {
  const { now } = await moments('everything');
  for (const parts of SUBSETS.filter(({ length }) => length > 0 && length < NAMES.length)) {
    const disk = new CrashFileSystem(putBack(now, new Map(), parts));
    let problem: string | undefined;
    try {
      const vault = await openOn(disk);
      ({ problem } = vault);
      await vault.close();
    } catch (error) {
      problem = (error as Error).message;
    }
    assert.match(problem ?? 'accepted', /rolled back|restore it|was truncated|missing/, parts.join(' '));
    assert.equal(disk.operations, 0, `${parts.join(' ')}: nothing is written`);
  }
});

test('parts of another node are refused', async () => {
  const ours = (await moments('everything')).now;
  const theirs = (await moments('everything')).now;
  for (const part of NAMES) {
    const disk = new CrashFileSystem(putBack(ours, theirs, [part]));
    const problem = await openOn(disk).then(
      async (vault) => (await vault.close(), vault.problem),
      (error: Error) => error.message,
    );
    assert.ok(problem !== undefined, part);
    assert.equal(disk.operations, 0, part);
  }
});

/** The problem of a start, or the reason why it does not start, or nothing. */
async function startProblem(disk: CrashFileSystem): Promise<string | undefined> {
  try {
    const vault = await openOn(disk);
    await vault.close();
    return vault.problem;
  } catch (error) {
    return (error as Error).message;
  }
}

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

test('any modification of a file is detected or harmless', async () => {
  const { now } = await moments('everything');
  const files = [...now.keys()].filter((path) => isOf(path, NAMES));
  assert.ok(files.length >= 8, files.join(' '));
  for (const [at, path] of files.entries()) {
    const name = path.slice(DATA.length + 1);
    const other = Buffer.from(now.get(files[(at + 1) % files.length]!)!);
    for (const [harm, change] of Object.entries(HARMS)) {
      const disk = new CrashFileSystem(new Map(now).set(path, change(Buffer.from(now.get(path)!), other)));
      const problem = await startProblem(disk);
      if (problem === undefined) await assertNoHarm(disk, `${name}: ${harm}`);
      else assert.equal(disk.operations, 0, `${name}: ${harm}: nothing is written`);
      const isSealed = isOf(path, ['anchor', 'custody', 'index', 'checkpoint']) || name === 'ops/head';
      if (isSealed) assert.match(problem ?? 'nothing', new RegExp(name.replace('audit/', '')), `${name}: ${harm}`);
    }
  }
});

/** Asserts that everything signed and completed is there, and that the full audit passes. */
async function assertNoHarm(disk: CrashFileSystem, what: string): Promise<void> {
  const vault = await openOn(disk);
  for (const id of ['first', 'second']) assert.equal(await doOnce(vault, id, 'again'), id, what);
  assert.equal(vault.log!.size, vault.log!.checkpoint!.size, what);
  await vault.close();
  assert.ok(await isWhole(disk.files()), what);
}

test('a completed operation is not repeated from a ledger that was rolled back or modified', async () => {
  const disk = new CrashFileSystem();
  const vault = await openOn(disk);
  await log(vault);
  await sign(vault);
  assert.equal(await doOnce(vault, 'early', 'once'), 'once');
  await sign(vault);
  const before = disk.files();
  assert.equal(await doOnce(vault, 'late', 'once'), 'once');
  await log(vault);
  await sign(vault);
  await vault.close();
  assert.match((await found(putBack(disk.files(), before, ['ops'])))!, /ops: 1 of 2 completed operations are missing/);
  const [path] = [...disk.files().keys()].filter((each) => each.includes('/ops/segments/'));
  const changed = new Map(disk.files());
  const bytes = Buffer.from(changed.get(path!)!);
  // A forged answer with a valid checksum: records begin at multiples of 64 bytes.
  changed.set(path!, bytes.subarray(0, bytes.length - 64));
  assert.match((await found(changed))!, /ops: 1 of 2 completed operations are missing/);
  const again = await openOn(new CrashFileSystem(disk.files()));
  assert.equal(await doOnce(again, 'late', 'twice'), 'once');
  await again.close();
});

test('no nonce repeats after any rollback', async () => {
  const disk = new CrashFileSystem();
  const vault = await openOn(disk);
  await use(vault, 'first');
  const before = disk.files();
  const { handle } = vault.registry.index.get('acme/docs/aes-256-gcm/first')!.versions[0]!;
  const nonces = new Set<string>();
  const wrapOn = async (image: Image): Promise<void> => {
    const restored = await openOn(new CrashFileSystem(image));
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
