/** A proof reads every record, agrees with the start, and finds the same problems as a start. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor } from '../compaction/compactor.ts';
import { acked, dead, messageOf, openNaive, removed } from '../testing/make.ts';
import { takeAcceptance, writeAcceptance } from './accept.ts';
import { proveDirectory, proveLog } from './prove.ts';

const DIR = '/mailbox';
const SEGMENT_BYTES = 4 * 1024;

/** A log of several segments with waiting, dead, acked and removed messages of two topics. */
async function fill(disk: CrashFileSystem): Promise<Awaited<ReturnType<typeof openNaive>>> {
  const opened = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
  const { log } = opened;
  for (let round = 0; round < 6; round++) {
    const [a, b, c] = await log.appendMessages(
      [messageOf('a', 1, 300), messageOf('b', 2, 300), messageOf('a', 3, 300), messageOf('b', 4, 300)],
      NEVER,
    );
    await log.appendSettled([acked(a!, 'a'), dead(b!, 'b'), dead(c!, 'a')], NEVER);
    await log.appendSettled([removed(c!, 'a')], NEVER);
  }
  return opened;
}

const TOTALS = [
  { topic: 'a', sent: 12, acked: 6, waiting: 0, dead: 0, gone: 6 },
  { topic: 'b', sent: 12, acked: 0, waiting: 6, dead: 6, gone: 0 },
];

test('a proof counts every topic from disk, while the mailbox runs and after it stopped', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await fill(disk);
  const running = await proveLog(log, DIR, { signal: NEVER });
  assert.deepEqual([running.ok, running.problem, running.topics], [true, undefined, TOTALS]);
  const compactor = new Compactor({ log, live: state, onEvent: () => undefined });
  await compactor.compactOldest(NEVER);
  assert.deepEqual((await proveLog(log, DIR, { signal: NEVER })).topics, TOTALS);
  await log.close();
  const progress: number[] = [];
  const files = disk.files();
  const fs = new CrashFileSystem(files);
  const stopped = await proveDirectory(DIR, {
    signal: NEVER,
    fs,
    onProgress: (each) => progress.push(each.done_bytes),
  });
  assert.deepEqual([stopped.ok, stopped.topics], [true, TOTALS]);
  assert.equal(progress.at(-1), stopped.bytes);
  assert.equal(fs.operations, 0, 'a proof changes nothing');
});

test('a proof of a running mailbox finds a message that is in memory only', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await fill(disk);
  const [some] = state.messages.values();
  state.messages.set(9999, { ...some!, seq: 9999 });
  const { ok, problem } = await proveLog(log, DIR, { signal: NEVER });
  assert.equal(ok, false);
  assert.match(problem!, /topic b: 6 waiting and 7 dead in memory, 6 and 6 on disk/);
  assert.equal(log.problem?.text, problem, 'the log is closed');
  await assert.rejects(log.appendMessages([messageOf('a', 1)], NEVER), { code: 'not_ready' });
  await log.close();
});

test('a directory that is not one of a mailbox is refused', async () => {
  await assert.rejects(proveDirectory('/tmp/there-is-no-such-mailbox', { signal: NEVER }), { code: 'not_found' });
});

/** Flips a byte of the header of the record with this number. */
function damageHeader(disk: CrashFileSystem, path: string, offset: number): void {
  disk.damage(path, (bytes) => bytes.with(offset + 12, bytes[offset + 12]! ^ 0xff));
}

test('a lost record closes the mailbox until exactly that problem is accepted; then the ledger balances', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await fill(disk);
  const { place, seq } = [...state.messages.values()].find((each) => each.dead === undefined)!;
  const path = log.segments.files.path(place.segment);
  await log.close();
  damageHeader(disk, path, place.offset);

  const broken = await openNaive(disk);
  assert.match(broken.log.problem!.text, new RegExp(`record ${seq} is missing`));
  assert.match(broken.log.problem!.text, /topic b/);
  await assert.rejects(broken.log.appendMessages([messageOf('a', 1)], NEVER), { code: 'not_ready' });
  await broken.log.close();
  const proof = await proveDirectory(DIR, { signal: NEVER, fs: disk });
  assert.equal(proof.problem_sha256, broken.log.problem!.sha256);
  assert.equal(proof.problem, broken.log.problem!.text);

  await writeAcceptance(DIR, { problem_sha256: 'another', reason: 'x' }, disk);
  const refused = await openNaive(disk);
  assert.equal(refused.log.problem?.sha256, proof.problem_sha256);
  await refused.log.close();

  await writeAcceptance(DIR, { problem_sha256: proof.problem_sha256, reason: 'a broken disk' }, disk);
  const accepted = await openNaive(disk);
  assert.equal(accepted.log.problem, undefined);
  assert.equal(await takeAcceptance(disk, DIR), undefined, 'an acceptance is used once');
  assert.deepEqual(accepted.state.totals.get('b'), { sent: 12, acked: 0, dead: 6, gone: 1 });
  await accepted.log.appendMessages([messageOf('b', 1)], NEVER);
  assert.equal(accepted.log.check(), undefined);
  await accepted.log.close();

  const after = await openNaive(disk);
  assert.equal(after.log.problem, undefined);
  // Later damage is not covered by the acceptance.
  const next = [...after.state.messages.values()].find((each) => each.dead === undefined)!;
  const next_path = after.log.segments.files.path(next.place.segment);
  await after.log.close();
  damageHeader(disk, next_path, next.place.offset);
  const again = await openNaive(disk);
  assert.match(again.log.problem!.text, new RegExp(`record ${next.seq} is missing`));
  assert.doesNotMatch(again.log.problem!.text, new RegExp(`record ${seq} is missing`));
  await again.log.close();
});

test('a lost segment is reported as missing records, wherever it was', async () => {
  const disk = new CrashFileSystem();
  const { log } = await fill(disk);
  await log.close();
  const paths = [...disk.files().keys()].filter((path) => path.endsWith('.seg')).toSorted();
  assert.ok(paths.length >= 3);
  for (const path of paths) {
    const files = disk.files();
    files.delete(path);
    const { log: after } = await openNaive(new CrashFileSystem(files));
    assert.match(after.problem!.text, /records? .* missing|waiting and/, path);
    await after.close();
  }
});

test('a second loss with the same numbers as an accepted one is another problem', async () => {
  const disk = new CrashFileSystem();
  /** Sends messages, each in a segment of its own, and loses the oldest segment. */
  const lose = async (sends: number): Promise<string | undefined> => {
    const { log } = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
    for (let sent = 0; sent < sends; sent++) await log.appendMessages([messageOf('a', 1, 3000)], NEVER);
    await log.close();
    const files = disk.files();
    const [oldest] = [...files.keys()].filter((path) => path.endsWith('.seg')).toSorted();
    await disk.remove(oldest!);
    const { problem, problem_sha256 } = await proveDirectory(DIR, { signal: NEVER, fs: disk });
    assert.ok(problem_sha256 !== undefined, 'the loss is found');
    const broken = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
    assert.equal(broken.log.problem?.sha256, problem_sha256);
    await broken.log.close();
    await writeAcceptance(DIR, { problem_sha256, reason: 'a broken disk' }, disk);
    return problem;
  };
  const first = await lose(3);
  assert.match(first!, /3 waiting and 0 dead by the records, 2 and 0 in the log/);
  assert.equal(await lose(1), first);
});

test('an acceptance that a start did not need does not accept a later problem', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await fill(disk);
  const { place } = [...state.messages.values()].find((each) => each.dead === undefined)!;
  const path = log.segments.files.path(place.segment);
  await log.close();
  const intact = disk.files().get(path)!;
  damageHeader(disk, path, place.offset);
  const { problem_sha256 } = await proveDirectory(DIR, { signal: NEVER, fs: disk });
  await writeAcceptance(DIR, { problem_sha256: problem_sha256!, reason: 'a broken disk' }, disk);
  // The operator restores the file instead.
  disk.damage(path, () => intact);
  const restored = await openNaive(disk);
  assert.equal(restored.log.problem, undefined);
  await restored.log.close();
  damageHeader(disk, path, place.offset);
  const broken = await openNaive(disk);
  assert.ok(broken.log.problem !== undefined);
  await broken.log.close();
});

test('an acceptance that cannot be removed is not used, and the start says so', async () => {
  let isFailing = false;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation, path) => {
      if (isFailing && operation === 'remove' && path.endsWith('accept.json')) throw new Error('EIO');
    },
  });
  const { log, state } = await fill(disk);
  const { place } = [...state.messages.values()].find((each) => each.dead === undefined)!;
  const path = log.segments.files.path(place.segment);
  await log.close();
  damageHeader(disk, path, place.offset);
  const { problem_sha256 } = await proveDirectory(DIR, { signal: NEVER, fs: disk });
  await writeAcceptance(DIR, { problem_sha256: problem_sha256!, reason: 'a broken disk' }, disk);
  isFailing = true;
  const problems: string[] = [];
  const broken = await openNaive(disk, {
    onEvent: (event) => void (event.kind === 'damage' && problems.push(event.problem)),
  });
  assert.ok(broken.log.problem !== undefined);
  assert.ok(
    problems.some((problem) => /accept.json was not used: EIO/.test(problem)),
    problems.join(),
  );
  await broken.log.close();
});
