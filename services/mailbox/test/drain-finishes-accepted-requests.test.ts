/** SIGTERM under load: accepted requests are answered, long polls are released at once, and the process ends cleanly. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { Recorder } from './histories/history.ts';
import { Load, TOPICS } from './histories/load.ts';
import { drainAndCheck } from './histories/run.ts';
import { startProcess } from './process.ts';

const ROUNDS = 3;
const MAX_DELIVERIES = 12;
const FLAGS = ['--mailbox.segment_bytes=4MiB', '--topics.window=1h', `--topics.max_deliveries=${MAX_DELIVERIES}`];
const HOLD_MS = 20_000;

test('[mailbox I-12] SIGTERM under load loses nothing, and a waiting receive is answered empty at once', async () => {
  await using temp = await tempDir();
  const recorder = new Recorder();
  const target = { url: '', headers: {}, isUp: false };
  const load = new Load(recorder, target);
  load.start();
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const { process: mailbox, headers } = await startProcess(temp.path, { flags: FLAGS });
      await using _ = mailbox;
      const { acked } = load;
      Object.assign(target, { url: mailbox.url, headers, isUp: true });
      const held = mailbox.send('POST', '/v1/mailbox/empty/receive', {
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify({ wait_ms: HOLD_MS }),
      });
      await eventually('messages are acked', () => load.acked > acked + 20);
      const began_ms = performance.now();
      mailbox.child.kill('SIGTERM');
      const reply = await held;
      assert.deepEqual([reply.status, reply.json.messages], [200, []]);
      assert.ok(performance.now() - began_ms < HOLD_MS / 2, 'it did not wait for its time');
      target.isUp = false;
      assert.equal(await mailbox.exit(), 0);
      assert.equal(mailbox.logged('drained')?.['clean'], true);
      assert.equal(mailbox.logged('drained')?.['requests_cut'], 0);
    }
  } finally {
    await load.stop();
  }
  const { process: mailbox, headers } = await startProcess(temp.path, { flags: FLAGS });
  await using _ = mailbox;
  await drainAndCheck(recorder, { url: mailbox.url, headers }, { topics: TOPICS, max_deliveries: MAX_DELIVERIES });
});
