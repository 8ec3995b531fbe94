/** Any damaged byte or cut file: never a crash, never a wrong message, and nothing that was acknowledged is lost silently. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor } from './compaction/compactor.ts';
import type { MailboxLog, StoreEvent } from './mailbox-log.ts';
import { writeAcceptance } from './ledger/accept.ts';
import { proveDirectory } from './ledger/prove.ts';
import type { MessagePlace } from './records.ts';
import { acked, dead, messageOf, metaOf, openNaive, removed } from './testing/make.ts';
import type { NaiveState } from './testing/naive-state.ts';

const DIR = '/mailbox';
const SEGMENT_BYTES = 1500;
const PAYLOAD_BYTES = 90;

/** Two segments with one of each record, closed cleanly. */
async function smallLog(): Promise<{ files: Map<string, Uint8Array>; state: NaiveState }> {
  const disk = new CrashFileSystem();
  const { log, state } = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
  const [a, b, c] = await log.appendMessages(
    [messageOf('a', 1, PAYLOAD_BYTES), messageOf('b', 2, PAYLOAD_BYTES), messageOf('a', 3, PAYLOAD_BYTES)],
    NEVER,
  );
  const lease = { seq: b!, delivery: 1, attempts: 1, nonce: 5, until_ms: 10, visibility_ms: 9 };
  await log.appendLeased([lease], NEVER);
  await log.appendSettled([acked(a!, 'a'), dead(c!, 'a', 'e')], NEVER);
  await log.appendTopic('b', { max_deliveries: 4 }, NEVER);
  await log.appendReplayed([messageOf('a', 4, PAYLOAD_BYTES)], [removed(c!, 'a')], NEVER);
  await log.appendMessages([messageOf('b', 5, PAYLOAD_BYTES)], NEVER);
  assert.equal(log.segments.files.totals().segments, 2);
  await log.close();
  return { files: disk.files(), state };
}

const segmentsOf = (files: Map<string, Uint8Array>): string[] =>
  [...files.keys()].filter((path) => path.endsWith('.seg')).toSorted();

const outcome = ({ messages, policies }: NaiveState): unknown => ({
  messages: [...messages.values()].map(({ seq, topic, id, dead: died }) => ({
    seq,
    topic,
    id,
    isDead: died !== undefined,
  })),
  policies,
});

/** A message that can be read is the one that was sent; so is its meta alone. */
async function requireRightBytes(log: MailboxLog, state: NaiveState): Promise<void> {
  for (const { place, id, topic } of state.messages.values()) {
    const head = await log.reader.readMeta(place);
    const { sent_ms, b3 } = metaOf(topic);
    if (head !== undefined) {
      assert.deepEqual(
        [Buffer.from(head.id).toString('hex'), head.meta.topic, head.meta.sent_ms],
        [id, topic, sent_ms],
      );
      assert.deepEqual(Uint8Array.from(head.meta.b3), b3);
    }
    const stored = await log.reader.read(place);
    if (stored === undefined) continue;
    assert.equal(Buffer.from(stored.id).toString('hex'), id);
    assert.deepEqual(Buffer.from(stored.payload), Buffer.alloc(PAYLOAD_BYTES, stored.id[0]));
  }
}

async function openDamaged(
  files: Map<string, Uint8Array>,
): Promise<{ log: MailboxLog; state: NaiveState; events: StoreEvent[] }> {
  const events: StoreEvent[] = [];
  const fs = new CrashFileSystem(files);
  const onEvent = (event: StoreEvent): void => void events.push(event);
  const { log, state } = await openNaive(fs, { segment_bytes: SEGMENT_BYTES, onEvent });
  await requireRightBytes(log, state);
  return { log, state, events };
}

/** The problem can be accepted, and does not come back. */
async function requireAcceptable(files: Map<string, Uint8Array>, problem_sha256: string, which: string): Promise<void> {
  const fs = new CrashFileSystem(files);
  await writeAcceptance(DIR, { problem_sha256, reason: 'a broken disk' }, fs);
  for (let start = 0; start < 2; start++) {
    const { log } = await openNaive(fs, { segment_bytes: SEGMENT_BYTES });
    assert.equal(log.problem?.text, undefined, which);
    await log.appendMessages([messageOf('a', 6, PAYLOAD_BYTES)], NEVER);
    assert.equal(log.check(), undefined, which);
    await log.close();
  }
}

test('every flipped byte is harmless, a dead letter, or a ledger problem that can be accepted', async () => {
  const { files, state: original } = await smallLog();
  const found = { harmless: 0, dead: 0, problem: 0 };
  const accepted = new Set<string>();
  for (const [path, bytes] of files) {
    for (let at = 0; at < bytes.length; at++) {
      const flipped = new Map(files).set(path, bytes.with(at, bytes[at]! ^ 0x10));
      const { log, state, events } = await openDamaged(flipped);
      const isDead = events.some(({ kind }) => kind === 'message damaged');
      const proof = await proveDirectory(DIR, { signal: NEVER, fs: new CrashFileSystem(flipped) });
      assert.equal(proof.problem_sha256, log.problem?.sha256, `byte ${at} of ${path}`);
      if (log.problem !== undefined) {
        found.problem += 1;
        const { sha256 } = log.problem;
        if (!accepted.has(sha256)) await requireAcceptable(flipped, sha256, `byte ${at} of ${path}`);
        accepted.add(sha256);
      } else if (isDead) found.dead += 1;
      else {
        found.harmless += 1;
        assert.deepEqual(outcome(state), outcome(original), `byte ${at} of ${path}`);
      }
      if (log.problem === undefined) assert.equal(log.check(), undefined);
      await log.close();
    }
  }
  assert.ok(found.problem > 500 && found.dead > 200 && found.harmless > 100, JSON.stringify(found));
});

test('a segment that was cut is reported, even at the end of the log', async () => {
  const { files, state: original } = await smallLog();
  for (const path of segmentsOf(files)) {
    const bytes = files.get(path)!;
    for (let length = 0; length < bytes.length; length += 32) {
      const { log, state } = await openDamaged(new Map(files).set(path, bytes.subarray(0, length)));
      for (const { seq, topic } of state.messages.values()) {
        const known = original.messages.get(seq);
        assert.ok(known === undefined || known.topic === topic);
      }
      const isSame = JSON.stringify(outcome(state)) === JSON.stringify(outcome(original));
      assert.ok(log.problem !== undefined || isSame, `${path} cut at ${length}`);
      await log.close();
    }
  }
});

test('a damaged message stays a dead letter after further starts, and is reported once', async () => {
  const { files, state } = await smallLog();
  const { place, seq } = [...state.messages.values()].at(-1)!;
  const path = segmentsOf(files)[place.segment - 1]!;
  const disk = new CrashFileSystem(files);
  disk.damage(path, (bytes) => bytes.with(place.offset + 64 + 3, 0xee));
  const reported: number[] = [];
  for (let start = 0; start < 3; start++) {
    const onEvent = (event: StoreEvent): void => void (event.kind === 'message damaged' && reported.push(event.seq));
    const opened = await openNaive(disk, { segment_bytes: SEGMENT_BYTES, onEvent });
    assert.equal(opened.log.problem, undefined);
    assert.equal(opened.state.messages.get(seq)!.dead!.reason, 'damaged');
    const meta = await opened.log.reader.readMeta(opened.state.messages.get(seq)!.place);
    assert.equal(meta?.meta.topic, 'b');
    await opened.log.close();
  }
  assert.deepEqual(reported, [seq]);
});

test('one intact copy of a message suffices after a crash between its move and the removal of its segment', async () => {
  const { files, seq, places } = await crashedCompaction();
  for (const { segment, offset } of places) {
    const path = segmentsOf(files)[segment - 1]!;
    const disk = new CrashFileSystem(files);
    disk.damage(path, (bytes) => bytes.with(offset + 64 + 3, 0xee));
    const opened = await openNaive(disk);
    assert.equal(opened.log.problem, undefined);
    const found = opened.state.messages.get(seq)!;
    assert.equal(found.dead, undefined, path);
    assert.deepEqual(Buffer.from((await opened.log.reader.read(found.place))!.payload), Buffer.alloc(PAYLOAD_BYTES, 1));
    await opened.log.close();
  }
});

test('a newest segment that is lost, and one that is restored from an older copy, break the ledger', async () => {
  const disk = new CrashFileSystem();
  const opened = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
  const older = disk.files();
  await opened.log.appendMessages([messageOf('a', 1, PAYLOAD_BYTES)], NEVER);
  const copied = disk.files();
  const [seq] = await opened.log.appendMessages([messageOf('a', 2, PAYLOAD_BYTES)], NEVER);
  // The process is killed, not closed: the mark is not synced.
  await opened.log.noteEnd();
  const files = disk.files();
  const [path] = segmentsOf(files);
  assert.deepEqual(segmentsOf(older), []);
  const withoutSegments = new Map([...files].filter(([name]) => !name.endsWith('.seg')));
  for (const broken of [withoutSegments, new Map(files).set(path!, copied.get(path!)!)]) {
    const fs = new CrashFileSystem(broken);
    const { log } = await openNaive(fs);
    assert.match(log.problem!.text, new RegExp(`records? .*${seq} (is|are) missing`));
    await log.close();
    await writeAcceptance(DIR, { problem_sha256: log.problem!.sha256, reason: 'a lost disk' }, fs);
    const accepted = await openNaive(fs);
    assert.equal(accepted.log.problem, undefined);
    const [next] = await accepted.log.appendMessages([messageOf('a', 3)], NEVER);
    assert.ok(next! > seq!, 'no number is used again');
    await accepted.log.close();
    const after = await openNaive(fs);
    assert.equal(after.log.problem, undefined);
    await after.log.close();
  }
});

/** A log whose first segment was moved, and not removed. */
async function crashedCompaction(): Promise<{ files: Map<string, Uint8Array>; seq: number; places: MessagePlace[] }> {
  let isFailing = false;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (isFailing && operation === 'remove') throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const { log, state } = await openNaive(disk);
  const [seq] = await log.appendMessages([messageOf('a', 1, PAYLOAD_BYTES)], NEVER);
  const { place } = state.messages.get(seq!)!;
  isFailing = true;
  const compactor = new Compactor({ log, live: state, onEvent: () => undefined });
  await assert.rejects(compactor.compactOldest(NEVER));
  return { files: disk.files(), seq: seq!, places: [place, state.messages.get(seq!)!.place] };
}
