/** A provider can neither sign for another one nor use up its limits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { TestNode } from './node/node.ts';
import { addProvider, NO_RATES, PATIENT, signed, type SenderScheme } from './node/senders.ts';

const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;
const OTHER_SECRETS: Readonly<Record<SenderScheme, string>> = {
  github: 'the secret of another provider',
  slack: 'the secret of another provider',
  stripe: 'the secret of another provider',
  standard: `whsec_${Buffer.from('the secret of another provider').toString('base64')}`,
};

async function start(t: Parameters<typeof TestNode.start>[0]) {
  // Without a disk, whose syncs may take longer than the deadline of a request on a slow machine.
  const flags = { interop: [...PATIENT, ...NO_RATES] };
  const node = await TestNode.start(t, { services: SERVICES, amnesia: true, flags });
  const [admin, mailbox] = [await node.admin(), await node.mailbox()];
  let n = 0;
  const post = (scheme: SenderScheme, provider: string): Promise<Reply> =>
    node.send('POST', `/webhooks/${provider}`, signed(scheme, `delivery_${(n += 1)}`, { provider }));
  /** The messages of each topic. In amnesia there is no spool. */
  const stored = async (): Promise<Readonly<Record<string, number>>> =>
    Object.fromEntries((await mailbox.topics()).map(({ topic, ledger }) => [topic, ledger.sent]));
  return { admin, post, stored };
}

test('a delivery of one provider is refused by another with its own secret, which stores nothing', async (t) => {
  const { admin, post, stored } = await start(t);
  const schemes = Object.keys(OTHER_SECRETS) as SenderScheme[];
  for (const scheme of schemes) {
    await addProvider(admin, scheme);
    await admin.putProvider(`${scheme}_2`, { scheme, secret: OTHER_SECRETS[scheme] });
    const refused = await post(scheme, `${scheme}_2`);
    assertRefusal(refused, 401, 'unauthorized');
    assert.equal(refused.headers['x-reason'], 'BAD_ORIGIN', scheme);
    await eventually('its own provider accepts it', async () => (await post(scheme, scheme)).status < 300);
  }
  assert.deepEqual(Object.keys(await stored()).toSorted(), schemes.map((scheme) => `hooks.${scheme}`).toSorted());
});

for (const [limit, limits] of [
  ['rps', { rps: 5, inflight: 1024 }],
  ['inflight', { rps: 10_000, inflight: 1 }],
] as const)
  test(`verified deliveries of a provider above its ${limit} get 429 RATE_LIMIT, and another provider is accepted`, async (t) => {
    const { admin, post, stored } = await start(t);
    await addProvider(admin, 'github', 'flooding');
    await admin.putProvider('flooding', { scheme: 'github', limits });
    await addProvider(admin, 'github', 'calm');
    const outcomes = new Map<string, number>();
    const over = new AbortController();
    const flood = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const { status, json } = await post('github', 'flooding');
        const outcome = `${status} ${json.reason ?? ''}`;
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      }
    };
    // Few senders: a slow machine must not reach the limits of the node.
    const floods = Array.from({ length: 4 }, flood);
    const refused = (): number => outcomes.get('429 RATE_LIMIT') ?? 0;
    await eventually('the limit is reached', () => refused() > 0);
    const before = refused();
    const CALM = 20;
    for (let at = 0; at < CALM; at += 1) {
      const reply = await post('github', 'calm');
      assert.equal(reply.status, 202, reply.text);
    }
    await eventually('the limit was in force meanwhile', () => refused() > before);
    over.abort();
    await Promise.all(floods);
    assert.deepEqual(new Set(outcomes.keys()), new Set(['202 ', '429 RATE_LIMIT']));
    assert.deepEqual(await stored(), { 'hooks.calm': CALM, 'hooks.flooding': outcomes.get('202 ') });
  });
