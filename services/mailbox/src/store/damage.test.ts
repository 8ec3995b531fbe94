/** Any damaged byte or cut file: never a crash, never a wrong message, and nothing that was acknowledged is lost silently. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import type { MailboxLog, StoreEvent } from './mailbox-log.ts';
import { acked, dead, messageOf, NEVER, openNaive, removed } from './testing/make.ts';
import type { NaiveState } from './testing/naive-state.ts';

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
  assert.equal(log.log.files.totals().segments, 2);
  await log.close();
  return { files: disk.files(), state };
}

const outcome = ({ messages, policies }: NaiveState): unknown => ({
  messages: [...messages.values()].map(({ seq, topic, id, dead: died }) => ({
    seq,
    topic,
    id,
    isDead: died !== undefined,
  })),
  policies,
});

/** A message that can be read is the one that was sent. */
async function requireRightBytes(log: MailboxLog, state: NaiveState): Promise<void> {
  for (const { place, id } of state.messages.values()) {
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

test('every flipped byte is harmless, a dead letter, or a ledger problem', async () => {
  const { files, state: original } = await smallLog();
  const found = { harmless: 0, dead: 0, problem: 0 };
  for (const [path, bytes] of files) {
    for (let at = 0; at < bytes.length; at++) {
      const flipped = new Map(files).set(path, bytes.with(at, bytes[at]! ^ 0x10));
      const { log, state, events } = await openDamaged(flipped);
      const isDead = events.some(({ kind }) => kind === 'message damaged');
      if (log.problem !== undefined) found.problem += 1;
      else if (isDead) found.dead += 1;
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

test('a segment that was cut is reported, unless it is the end of the log', async () => {
  const { files, state: original } = await smallLog();
  const paths = [...files.keys()].toSorted();
  for (const path of paths) {
    const bytes = files.get(path)!;
    for (let length = 0; length < bytes.length; length += 32) {
      const { log, state } = await openDamaged(new Map(files).set(path, bytes.subarray(0, length)));
      for (const { seq, topic } of state.messages.values()) {
        const known = original.messages.get(seq);
        assert.ok(known === undefined || known.topic === topic);
      }
      const isSame = JSON.stringify(outcome(state)) === JSON.stringify(outcome(original));
      if (path !== paths.at(-1)) assert.ok(log.problem !== undefined || isSame, `${path} cut at ${length}`);
      await log.close();
    }
  }
});

test('a damaged message stays a dead letter after further starts, and is reported once', async () => {
  const { files, state } = await smallLog();
  const { place, seq } = [...state.messages.values()].at(-1)!;
  const path = [...files.keys()].toSorted()[place.segment - 1]!;
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
