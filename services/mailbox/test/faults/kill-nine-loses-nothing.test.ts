/**
 * kill -9 at random under load: every message that was sent is delivered, none that was acked is delivered again, leases,
 * attempts, keys and idempotency keys survive, and the ledger balances. 10 rounds; RON_LONG=1 makes it 100.
 *
 * [mailbox I-1] [mailbox I-2] [mailbox I-3] [mailbox I-4] [mailbox I-5] [mailbox I-6] [mailbox I-8] [mailbox I-9]
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { Recorder } from '../histories/history.ts';
import { Load, TOPICS } from '../histories/load.ts';
import { drainAndCheck } from '../histories/run.ts';
import { startProcess } from '../process.ts';

const ROUNDS = process.env['RON_LONG'] === '1' ? 100 : 10;
const MAX_DELIVERIES = 8;
const FLAGS = ['--mailbox.segment_bytes=4MiB', `--topics.max_deliveries=${MAX_DELIVERIES}`, '--topics.window=1h'];

test(`${ROUNDS} kills under load lose no message and no ack`, { timeout: 60_000 + ROUNDS * 20_000 }, async () => {
  await using temp = await tempDir();
  const recorder = new Recorder();
  const target = { url: '', headers: {}, isUp: false };
  const load = new Load(recorder, target);
  load.start();
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const { process: mailbox, headers } = await startProcess(temp.path, { flags: FLAGS });
      await using _ = mailbox;
      const { acked, sent } = load;
      Object.assign(target, { url: mailbox.url, headers, isUp: true });
      await new Promise((resolve) => setTimeout(resolve, 30 + Math.random() * 300));
      // On a slow machine too, every second round has messages to lose.
      if (round % 2 === 0)
        await eventually('messages are acked', () => load.acked > acked + 10 && load.sent > sent + 20);
      target.isUp = false;
      await mailbox.kill();
    }
  } finally {
    await load.stop();
  }
  assert.ok(load.sent > ROUNDS * 10 && load.acked > ROUNDS * 5, `only ${load.sent} sent and ${load.acked} acked`);
  const { process: mailbox, headers } = await startProcess(temp.path, { flags: FLAGS });
  await using _ = mailbox;
  assert.equal(await mailbox.metric('integrity_fail_total{reason="ledger"}'), 0);
  await drainAndCheck(recorder, { url: mailbox.url, headers }, { topics: TOPICS, max_deliveries: MAX_DELIVERIES });
});
