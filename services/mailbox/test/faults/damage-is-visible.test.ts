/**
 * Damage of the files of a stopped mailbox: a message with a damaged body becomes a dead letter with its id; damage that
 * hides whole records breaks the ledger visibly; nothing is delivered with other bytes.
 */
import assert from 'node:assert/strict';
import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { RECORD } from '../../src/store/records.ts';
import { startClient, type ProcessClient, type ReceivedJson } from '../process-client.ts';

const HEADER_BYTES = 64;
/** The begin of a record; its type follows. */
const MAGIC = 'RON1';
const FLAGS = ['--mailbox.segment_bytes=4MiB'];
const LEDGER_BROKEN = 'integrity_fail_total{reason="ledger"}';

class StoppedMailbox {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** The segment files, oldest first. */
  async segments(): Promise<string[]> {
    const all = await readdir(join(this.#dir, 'data'), { recursive: true });
    const files = all.filter((name) => /segments\/[^/]+$/.test(name) && !name.endsWith('.tmp'));
    return files.toSorted().map((name) => join(this.#dir, 'data', name));
  }

  /** Changes a byte at `offset` from the place where the payload begins. */
  async flip(payload: Uint8Array, offset: number): Promise<void> {
    for (const path of await this.segments()) {
      const bytes = await readFile(path);
      const at = bytes.indexOf(payload);
      if (at < 0) continue;
      bytes[at + offset]! ^= 0xff;
      await writeFile(path, bytes);
      return;
    }
    assert.fail('no segment holds the payload');
  }

  /** Changes a byte of each record of a type, `offset` from its begin; returns how many. */
  async flipRecords(type: number, offset: number): Promise<number> {
    let count = 0;
    for (const path of await this.segments()) {
      const bytes = await readFile(path);
      for (let at = 0; at < bytes.length; at += HEADER_BYTES) {
        if (bytes.toString('latin1', at, at + MAGIC.length) !== MAGIC || bytes[at + MAGIC.length] !== type) continue;
        bytes[at + offset]! ^= 0xff;
        count += 1;
      }
      await writeFile(path, bytes);
    }
    return count;
  }
}

/** Starts, lets `use` work, and stops. */
async function during<T>(dir: string, use: (mailbox: ProcessClient) => Promise<T>): Promise<T> {
  await using mailbox = await startClient(dir, { flags: FLAGS });
  const result = await use(mailbox);
  assert.equal(await mailbox.process.stop(), 0);
  return result;
}

const payloads = Array.from({ length: 5 }, (_, n) => bytesOf(1000, n + 1));

async function sendAll(mailbox: ProcessClient): Promise<{ seq: number; id: string }[]> {
  const sent: { seq: number; id: string }[] = [];
  for (const payload of payloads) sent.push((await mailbox.send(payload)).json);
  return sent;
}

const payloadsOf = (messages: readonly ReceivedJson[]): string[] => messages.map(({ payload }) => payload);
const base64 = (indices: readonly number[]): string[] => indices.map((n) => payloads[n]!.toString('base64'));

async function assertBroken(mailbox: ProcessClient): Promise<void> {
  const { status, reasons } = await mailbox.readyz();
  assert.equal(status, 503);
  assert.ok(reasons['ledger'] !== undefined, JSON.stringify(reasons));
  assert.ok((await mailbox.process.metric(LEDGER_BROKEN)) >= 1);
  for (const path of ['/healthz', '/metrics']) assert.equal((await mailbox.process.send('GET', path)).status, 200);
  assertRefusal(await mailbox.send(payloads[0]!), 503, 'not_ready');
  assertRefusal(await mailbox.post('jobs/receive', {}), 503, 'not_ready');
}

test('[mailbox I-8] a message with a damaged body becomes a dead letter with its id, and the others are delivered', async () => {
  await using temp = await tempDir();
  const sent = await during(temp.path, sendAll);
  await new StoppedMailbox(temp.path).flip(payloads[2]!, 500);
  await during(temp.path, async (mailbox) => {
    const messages = await mailbox.receive();
    assert.deepEqual(payloadsOf(messages), base64([0, 1, 3, 4]));
    await mailbox.settle('ack', messages);
    await eventually('it is dead', async () => (await mailbox.ledger()).dead === 1);
    const { dead } = (await mailbox.get('jobs/dlq')).json;
    assert.deepEqual(
      dead.map(({ id, seq, reason }: Record<string, unknown>) => ({ id, seq, reason })),
      [{ id: sent[2]!.id, seq: sent[2]!.seq, reason: 'damaged' }],
    );
    const { ready, delayed, leased, acked } = await mailbox.ledger();
    assert.deepEqual({ ready, delayed, leased, acked }, { ready: 0, delayed: 0, leased: 0, acked: 4 });
    assert.equal(await mailbox.process.metric(LEDGER_BROKEN), 0);
    await eventually('it is logged', () => mailbox.process.log.some((line) => line['id'] === sent[2]!.id));
  });
  await during(temp.path, async (mailbox) => {
    assert.deepEqual(await mailbox.receive(), []);
    assert.equal((await mailbox.ledger()).dead, 1, 'it is the same dead letter after a restart');
  });
});

test('a body that is damaged while the mailbox runs is not delivered', async () => {
  await using temp = await tempDir();
  await using mailbox = await startClient(temp.path, { flags: FLAGS });
  await sendAll(mailbox);
  await new StoppedMailbox(temp.path).flip(payloads[1]!, 10);
  const messages = await mailbox.receive();
  for (const { payload } of messages) assert.ok(base64([0, 2, 3, 4]).includes(payload));
  await mailbox.settle('ack', messages);
  await eventually('it is dead', async () => (await mailbox.ledger()).dead === 1);
  const rest = await mailbox.empty();
  assert.equal(messages.length + rest.length, 4);
});

test('[mailbox I-8] a damaged record header hides a message: the ledger is broken and requests are refused', async () => {
  await using temp = await tempDir();
  await during(temp.path, sendAll);
  await new StoppedMailbox(temp.path).flip(payloads[2]!, 12 - HEADER_BYTES);
  await during(temp.path, assertBroken);
  await during(temp.path, assertBroken);
});

test('a lost segment with waiting messages breaks the ledger; brought back, everything is there', async () => {
  const large = Array.from({ length: 60 }, (_, n) => bytesOf(200 * KIB, n + 100));
  for (const which of ['oldest', 'middle'] as const) {
    await using temp = await tempDir();
    await during(temp.path, async (mailbox) => {
      for (const payload of large) assert.equal((await mailbox.send(payload)).status, 201);
    });
    const segments = await new StoppedMailbox(temp.path).segments();
    assert.ok(segments.length >= 3, `${segments.length} segments`);
    const path = segments[which === 'oldest' ? 0 : 1]!;
    await rename(path, join(temp.path, 'away'));
    await during(temp.path, assertBroken);
    await rm(path, { force: true });
    await rename(join(temp.path, 'away'), path);
    await during(temp.path, async (mailbox) => {
      assert.equal((await mailbox.readyz()).status, 200);
      assert.equal((await mailbox.empty()).length, large.length);
    });
  }
});

test('[mailbox I-8] a proof of a running mailbox that finds a lost segment closes it', async () => {
  await using temp = await tempDir();
  await using mailbox = await startClient(temp.path, { flags: FLAGS });
  for (let n = 0; n < 40; n++) assert.equal((await mailbox.send(bytesOf(200 * KIB, n))).status, 201);
  const [oldest] = await new StoppedMailbox(temp.path).segments();
  await rename(oldest!, join(temp.path, 'away'));
  assert.equal((await mailbox.readyz()).status, 200);
  assert.equal((await mailbox.prove()).status, 202);
  await eventually('the ledger is broken', async () => (await mailbox.readyz()).status === 503);
  await assertBroken(mailbox);
  await eventually('it is logged', () => mailbox.process.log.some((line) => line['msg'] === 'ledger broken'));
});

for (const [part, offset] of [
  ['header', 12],
  ['body', HEADER_BYTES],
] as const) {
  test(`[mailbox I-8] an acknowledgement with a damaged ${part} breaks the ledger: it is not mistaken for none`, async () => {
    await using temp = await tempDir();
    await during(temp.path, async (mailbox) => {
      await sendAll(mailbox);
      await mailbox.settle('ack', await mailbox.receive('jobs', { max: 1 }));
      // Damage of the last record of a log looks like a torn write.
      await mailbox.send(bytesOf(1000, 99));
    });
    const stopped = new StoppedMailbox(temp.path);
    assert.equal(await stopped.flipRecords(RECORD.settled, offset), 1);
    await during(temp.path, assertBroken);
  });
}
