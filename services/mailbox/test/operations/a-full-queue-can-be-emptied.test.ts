/** A disk that is full of waiting messages: no sequence of leases and returns takes the space that settlements need. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { MemoryDisk } from '@ron/log';
import type { ReceivedMessage } from '@ron/proto';
import { Compactor } from '../../src/store/compaction/compactor.ts';
import type { Mailbox } from '../../src/mailbox/mailbox.ts';
import { TOPIC, withMailbox, type TestBox } from './support.ts';

const MIB = 1024 * 1024;
const VISIBILITY_MS = 3_600_000;

/** Sends until the disk is full; returns the number of messages. */
async function fill(box: Mailbox, payload_bytes: number): Promise<number> {
  const payload = Buffer.alloc(payload_bytes);
  let sent = 0;
  for (;;) {
    const messages = Array.from({ length: 16 }, () => ({ topic: TOPIC, payload }));
    try {
      sent += (await box.send(messages, NEVER)).filter((result) => 'seq' in result).length;
    } catch (error) {
      assert.equal((error as { code: string }).code, 'storage_full');
      return sent;
    }
  }
}

const tokensOf = (messages: readonly ReceivedMessage[]): string[] => messages.map(({ token }) => token);

const onFullDisk = (
  disk_bytes: number,
  payload_bytes: number,
  use: (mailbox: TestBox, sent: number, compact: () => Promise<void>) => Promise<void>,
): Promise<void> =>
  withMailbox(
    async (mailbox) => {
      const sent = await fill(mailbox.box, payload_bytes);
      const { log, live } = mailbox.box.parts;
      const compactor = new Compactor({ log, live, onEvent: () => undefined });
      const compact = async (): Promise<void> => {
        await log.reserve.measure();
        await compactor.pass(NEVER).catch((error: { code: string }) => assert.equal(error.code, 'storage_full'));
        await log.reserve.measure();
      };
      await use(mailbox, sent, compact);
      const { ledger } = mailbox.box.topic(TOPIC);
      assert.deepEqual([ledger.acked + ledger.dead, ledger.ready, ledger.leased], [sent, 0, 0]);
      assert.equal(log.check(), undefined);
      await compact();
      assert.ok('seq' in (await mailbox.send('there is room')));
    },
    {
      max_messages: 1e6,
      max_bytes: 1024 * MIB,
      max_deliveries: 1e6,
      dead_max_messages: 1e6,
      dead_max_bytes: 1024 * MIB,
    },
    { fs: new MemoryDisk(disk_bytes), segment_bytes: 4 * MIB },
  );

/** Calls that write more than the reserve. */
const FAILING: Record<string, (box: Mailbox, tokens: string[]) => Promise<void>> = {
  extends: async (box, tokens) => {
    for (let call = 0; call < 16; call++) await box.extend(TOPIC, tokens, VISIBILITY_MS, NEVER);
  },
  'failing receivers': async (box, tokens) => {
    await box.nack(TOPIC, tokens, { delay_ms: 0, error: 'x'.repeat(1000) }, NEVER);
    const { messages } = await box.receive(
      TOPIC,
      { max: 128, visibility_ms: VISIBILITY_MS, bytes_max: 8 * MIB },
      NEVER,
    );
    tokens.splice(0, tokens.length, ...tokensOf(messages));
  },
};

for (const [name, fail] of Object.entries(FAILING)) {
  test(`[mailbox I-10] ${name} do not use up the space of acks and dead letters`, async () => {
    await onFullDisk(16 * MIB, 8192, async ({ box, receive }, sent, compact) => {
      const tokens = tokensOf(await receive({ visibility_ms: VISIBILITY_MS, bytes_max: 8 * MIB }));
      for (let call = 0; call < 40; call++) await fail(box, tokens);
      await box.parts.log.reserve.measure();
      assert.ok(box.parts.log.reserve.free_bytes > MIB / 3, `${box.parts.log.reserve.free_bytes} bytes are left`);
      await box.nack(TOPIC, tokens.splice(0, 1), { dead: true }, NEVER);
      await box.ack(TOPIC, tokens, NEVER);
      for (let left = sent - 128; left > 0; left -= 128) {
        const messages = await receive({ bytes_max: 8 * MIB });
        assert.ok(messages.length > 0);
        await box.ack(TOPIC, tokensOf(messages), NEVER);
        await compact();
      }
    });
  });
}

test('[mailbox I-10] compaction frees the space of lease records, even if all messages are live', async () => {
  await onFullDisk(128 * MIB, 100_000, async ({ box, receive }, sent, compact) => {
    const { reserve, disk } = box.parts.log;
    const messages = [];
    for (;;) {
      const more = await receive({ visibility_ms: VISIBILITY_MS, bytes_max: 8 * MIB });
      if (more.length === 0) break;
      messages.push(...more);
    }
    assert.equal(messages.length, sent);
    const tokens = tokensOf(messages).slice(0, 128);
    while (!disk.isShort(4096)) await box.extend(TOPIC, tokens, VISIBILITY_MS, NEVER);
    await reserve.measure();
    const before = reserve.free_bytes;
    await box.extend(TOPIC, tokens, VISIBILITY_MS, NEVER);
    await reserve.measure();
    assert.equal(reserve.free_bytes, before, 'the extend is not written');
    await compact();
    assert.ok(!disk.isShort(4096), `${reserve.free_bytes} bytes are free`);
    assert.deepEqual(new Set(await box.ack(TOPIC, tokens, NEVER)), new Set(['ok']));
    for (const { token } of messages.slice(128)) await box.ack(TOPIC, [token], NEVER);
  });
});
