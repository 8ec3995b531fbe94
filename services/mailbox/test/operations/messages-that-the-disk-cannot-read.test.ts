/** A bad sector or a missing file hides one message: the others are delivered, and a read that works again loses nothing. */
import assert from 'node:assert/strict';
import { readdir, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { Compactor } from '../../src/store/compaction/compactor.ts';
import { writeAcceptance } from '../../src/store/ledger/accept.ts';
import { proveDirectory, proveLog } from '../../src/store/ledger/prove.ts';
import { stored, texts, TOPIC, withMailbox, type TestBox } from './support.ts';

const HEADER_BYTES = 64;
const SECTOR_BYTES = 4096;
const VISIBILITY_MS = 30_000;
const BACKOFF_MS = 60_000;

const placeOf = ({ box }: TestBox, seq: number) => box.parts.state.view(box.parts.state.find(seq)).place;
const pathOf = ({ box }: TestBox): string => {
  const { files } = box.parts.log.segments;
  return files.path(files.numbers()[0]!);
};
const dirOf = (given: TestBox): string => dirname(dirname(pathOf(given)));

/** Sends `count` messages; a sector of the second one cannot be read: within its payload, or with its header. */
async function sendWithBad(given: TestBox, count: number, part: 'payload' | 'header' = 'payload'): Promise<number> {
  const seqs: number[] = [];
  for (let n = 1; n <= count; n++) seqs.push(stored(await given.send(`message ${n} ${'x'.repeat(10_000)}`)).seq);
  const { offset } = placeOf(given, seqs[1]!);
  const at = part === 'header' ? offset : Math.ceil((offset + HEADER_BYTES) / SECTOR_BYTES) * SECTOR_BYTES;
  given.disk.badSector('.seg', at, at + 1);
  return seqs[1]!;
}

const first = (messages: Parameters<typeof texts>[0]): string[] => texts(messages).map((text) => text.slice(0, 9));

test('the other messages are delivered, one by one too; the message is back when the disk reads it again', async () => {
  await withMailbox(async (given) => {
    const bad = await sendWithBad(given, 3);
    const one = await given.receive({ max: 1 });
    assert.deepEqual(first(one), ['message 1']);
    assert.deepEqual(await given.receive({ max: 1 }), []);
    assert.deepEqual(first(await given.receive({ max: 1 })), ['message 3']);
    assert.match(given.box.diskProblem!, /^segment 1 cannot be read at \d+: the disk failed \(EIO\)$/);
    await given.box.parts.log.probe(NEVER);
    assert.ok(given.box.diskProblem !== undefined, 'the probe reads it again');
    given.disk.mend();
    await given.box.parts.log.probe(NEVER);
    assert.equal(given.box.diskProblem, undefined);
    await given.ack(...one);
    await given.advance(VISIBILITY_MS);
    await given.advance(BACKOFF_MS);
    const again = await given.receive();
    assert.deepEqual(first(again), ['message 2', 'message 3']);
    assert.deepEqual([again[0]!.seq, again[0]!.attempts], [bad, 2]);
  });
});

test('after its last delivery it is a dead letter, which can be replayed when the disk reads it again', async () => {
  await withMailbox(async (given) => {
    await sendWithBad(given, 2);
    await given.ack(...(await given.receive()));
    for (let delivery = 2; delivery <= 3; delivery++) {
      await given.advance(VISIBILITY_MS);
      await given.advance(BACKOFF_MS);
      assert.deepEqual(await given.receive(), []);
    }
    await given.advance(VISIBILITY_MS);
    const { dead } = await given.box.deadLetters(TOPIC, 0, 10, NEVER);
    assert.deepEqual([dead[0]?.reason, dead[0]?.error], ['max_deliveries', 'the disk could not read the message']);
    assert.equal((await given.box.replayDead(TOPIC, { limit: 10 }, NEVER)).replayed, 0);
    given.disk.mend();
    assert.equal((await given.box.replayDead(TOPIC, { limit: 10 }, NEVER)).replayed, 1);
    assert.deepEqual(first(await given.receive()), ['message 2']);
  });
});

test('[mailbox I-8] a start and a proof go on: the message is a dead letter `damaged`', async () => {
  await withMailbox(async (given) => {
    const bad = await sendWithBad(given, 3);
    await given.reopen(async () => {
      const { ok, damaged } = await proveDirectory(dirOf(given), { signal: NEVER, fs: given.disk });
      assert.deepEqual([ok, damaged], [true, 1]);
    });
    assert.equal(given.box.ledgerProblem, undefined);
    assert.deepEqual(first(await given.receive()), ['message 1', 'message 3']);
    assert.equal((await proveLog(given.box.parts.log, dirOf(given), { signal: NEVER })).ok, true);
    const { dead } = await given.box.deadLetters(TOPIC, 0, 10, NEVER);
    assert.deepEqual([dead.length, dead[0]?.seq, dead[0]?.reason], [1, bad, 'damaged']);
    given.disk.mend();
    assert.equal((await given.box.replayDead(TOPIC, {}, NEVER)).replayed, 1);
    assert.deepEqual(first(await given.receive()), ['message 2'], 'the disk reads it again');
  });
});

test('an online proof that cannot read a record says so, and does not close a healthy mailbox', async () => {
  await withMailbox(async (given) => {
    await sendWithBad(given, 4, 'header');
    const { ok } = await proveLog(given.box.parts.log, dirOf(given), { signal: NEVER });
    assert.equal(ok, false);
    assert.match(given.box.diskProblem!, /cannot be read/);
    given.disk.mend();
    assert.equal(given.box.ledgerProblem, undefined);
    assert.equal((await given.receive()).length, 4);
    assert.equal((await proveLog(given.box.parts.log, dirOf(given), { signal: NEVER })).ok, true);
  });
});

for (const end of ['the disk reads it again', 'its dead letter is deleted'] as const) {
  test(`[mailbox I-8] compaction keeps a message that it cannot read until ${end}`, async () => {
    await withMailbox(async (given) => {
      const bad = await sendWithBad(given, 3);
      const { log, live } = given.box.parts;
      const compactor = new Compactor({ log, live, onEvent: () => undefined });
      await assert.rejects(compactor.compactOldest(NEVER), /message \d+ in segment 1 cannot be read/);
      assert.match(given.box.diskProblem!, /segment 1 cannot be read/);
      if (end === 'the disk reads it again') given.disk.mend();
      else {
        await given.reopen();
        assert.equal((await given.box.deleteDead(TOPIC, { seqs: [bad] }, NEVER)).deleted, 1);
      }
      const { parts } = given.box;
      const next = new Compactor({ log: parts.log, live: parts.live, onEvent: () => undefined });
      assert.equal(await next.compactOldest(NEVER), true);
      // The bad sector is at that offset of every segment.
      given.disk.mend();
      const expected = ['message 1', 'message 2', 'message 3'];
      assert.deepEqual(
        first(await given.receive()),
        expected.filter((text) => text !== 'message 2' || end === 'the disk reads it again'),
      );
    });
  });
}

test('[mailbox I-8] an unreadable header hides the message: the ledger is broken, and can be accepted', async () => {
  await withMailbox(async (given) => {
    await sendWithBad(given, 4, 'header');
    await given.reopen();
    assert.match(given.box.ledgerProblem!, /record \d+ is missing/);
    await given.reopen(async () => {
      const { problem_sha256 } = await proveDirectory(dirOf(given), { signal: NEVER, fs: given.disk });
      await writeAcceptance(dirOf(given), { problem_sha256: problem_sha256!, reason: 'a bad sector' }, given.disk);
    });
    assert.equal(given.box.ledgerProblem, undefined);
    assert.deepEqual(first(await given.receive()), ['message 3', 'message 4']);
    const { dead } = await given.box.deadLetters(TOPIC, 0, 10, NEVER);
    assert.deepEqual([dead.length, dead[0]?.reason], [1, 'damaged'], 'the first message ends in the same sector');
  });
});

test('a segment that is missing while the mailbox runs: the messages of the others are delivered', async () => {
  await withMailbox(async (given) => {
    await given.send('lost');
    await given.box.parts.log.rotate(NEVER);
    await given.send('there');
    const path = pathOf(given);
    await rename(path, join(dirOf(given), 'away'));
    assert.equal((await readdir(dirname(path))).length, 1);
    assert.deepEqual(texts(await given.receive()), ['there']);
    assert.match(given.box.diskProblem!, /the file or directory is gone \(ENOENT\)/);
    await rename(join(dirOf(given), 'away'), path);
    await given.box.parts.log.probe(NEVER);
    assert.equal(given.box.diskProblem, undefined);
  });
});
