/**
 * kill -9 of each service under load: every accepted delivery arrives once and in the order of its stream, no acked message comes
 * again, and every receipt is signed in the end. 2 rounds; RON_LONG=1 makes it 20.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkAccepted } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { NODE_SERVICES, TestNode } from '../node/node.ts';
import { addProvider, NO_RATES } from '../node/senders.ts';

const ROUNDS = process.env['RON_LONG'] === '1' ? 20 : 2;
const SCHEMES = ['github', 'stripe', 'standard'] as const;

test(`${ROUNDS} kills of each service under load lose nothing`, { timeout: 120_000 + ROUNDS * 60_000 }, async (t) => {
  const node = await TestNode.start(t, { flags: { interop: NO_RATES } });
  const admin = await node.admin();
  for (const scheme of SCHEMES) await addProvider(admin, scheme);
  let url = node.url;
  const load = new Load(t, { url: () => url, schemes: SCHEMES, rate_per_s: 40 });
  const mailbox = await node.mailbox();
  const consumer = new Consumer(
    t,
    mailbox,
    SCHEMES.map((scheme) => `hooks.${scheme}`),
  );
  consumer.start();
  load.start();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const name of NODE_SERVICES) {
      await load.moves(10);
      await node.kill(name);
      await node.start(name);
      url = node.url;
    }
  }
  await load.moves(20);
  await load.stop();
  await consumer.stop();
  await checkAccepted(node, load, consumer);
  // Each start that finds a loss of segments records it.
  assert.equal(await readFile(join(node.dataOf('interop'), 'logs'), 'utf8'), 'spool kept\nreceipts kept\n');
  const { accepted, refusals } = load;
  const duplicates = accepted.filter(({ duplicate }) => duplicate);
  for (const { failures } of duplicates) assert.ok(failures > 0, 'a delivery that was sent once is not a duplicate');
  const spooled = accepted.filter(({ place }) => place === 'spool').length;
  t.diagnostic(
    `${accepted.length} accepted, ${spooled} spooled, ${duplicates.length} duplicates, refused ${JSON.stringify([...refusals])}`,
  );
});
