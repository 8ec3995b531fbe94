/**
 * Mailbox is killed under 100 webhooks/s and stays away for 400 of them (RON_LONG=1: 300/s and 3000): each gets 202 at its first
 * request, and they arrive in the order of their streams, none twice.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkAccepted } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, NO_RATES } from '../node/senders.ts';

const IS_LONG = process.env['RON_LONG'] === '1';
/** While mailbox is away. */
const AWAY_COUNT = IS_LONG ? 3000 : 400;
const RATE_PER_S = IS_LONG ? 300 : 100;
const SCHEMES = ['github', 'stripe'] as const;
const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;

test(
  '[interop I-9] mailbox is killed and comes back: every webhook gets 202 and arrives',
  { timeout: 120_000 },
  async (t) => {
    const node = await TestNode.start(t, {
      services: SERVICES,
      flags: { interop: NO_RATES },
    });
    const admin = await node.admin();
    for (const scheme of SCHEMES) await addProvider(admin, scheme);
    const mailbox = await node.mailbox();
    const consumer = new Consumer(
      t,
      mailbox,
      SCHEMES.map((scheme) => `hooks.${scheme}`),
    );
    const load = new Load(t, {
      url: () => node.url,
      schemes: SCHEMES,
      streams: IS_LONG ? 32 : 8,
      rate_per_s: RATE_PER_S,
    });
    consumer.start();
    load.start();
    await load.moves(20);
    await node.kill('mailbox');
    const before = load.accepted.length;
    await load.moves(AWAY_COUNT);
    const during = load.accepted.slice(before);
    await node.start('mailbox');
    await load.moves(20);
    await load.stop();
    await consumer.stop();
    assert.deepEqual([...load.refusals], [], 'no webhook was refused');
    assert.ok(during.some(({ place }) => place === 'spool'));
    await checkAccepted(node, load, consumer);
    t.diagnostic(
      `${load.accepted.length} accepted, ${during.length} while mailbox was away; the slowest took ${Math.round(load.slowest_ms)} ms`,
    );
  },
);
