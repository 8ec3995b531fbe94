/**
 * Webhooks with a content coding: the signature is that of the decoded body, which is stored, and a body that decodes to too
 * much leaves nothing behind.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { assertSameBytes, bytesOf, eventually, KIB } from '@ron/testkit';
import { addressOf, assertRefusal, type Reply } from '@ron/testkit/service';
import { TestNode } from './node/node.ts';
import { addProvider, PATIENT, signed, signedBody, type SignedDelivery } from './node/senders.ts';

const CODINGS = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdCompressSync } as const;
const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;

async function setUp(t: TestContext) {
  const node = await TestNode.start(t, { services: SERVICES, inside: {}, flags: { interop: PATIENT } });
  await addProvider(await node.admin(), 'github');
  const mailbox = await node.mailbox();
  const post = ({ provider, headers }: SignedDelivery, coding: string, body: Uint8Array): Promise<Reply> =>
    node.send('POST', `/webhooks/${provider}`, { headers: { ...headers, 'content-encoding': coding }, body });
  /** Messages that mailbox or the spool got. */
  const stored = async (): Promise<number> => {
    const topic = (await mailbox.topics()).find(({ topic: name }) => name === 'hooks.github');
    return (topic?.ledger.sent ?? 0) + (await node.metric('interop', 'spool_deliveries'));
  };
  return { node, mailbox, post, stored };
}

test('a coded webhook is verified and stored decoded, and a signature of the coded bytes is refused', async (t) => {
  const { mailbox, post, stored } = await setUp(t);
  const bodies: Buffer[] = [];
  for (const [coding, encode] of Object.entries(CODINGS)) {
    const delivery = signed('github', coding, { bytes: 100 });
    const reply = await post(delivery, coding, encode(delivery.body));
    assert.equal(reply.status, 202, `${coding}: ${reply.text}`);
    assert.equal(reply.json.b3, addressOf(delivery.body), coding);
    bodies.push(delivery.body);
    const coded = encode(signed('github', `${coding} signed coded`).body);
    const refused = await post(signedBody('github', coding, coded), coding, coded);
    assertRefusal(refused, 401, 'unauthorized');
    assert.equal(refused.headers['x-reason'], 'BAD_ORIGIN', coding);
  }
  assert.equal(await stored(), bodies.length);
  const messages = await mailbox.receive('hooks.github', { max: 10 });
  assert.equal(messages.length, bodies.length);
  for (const [at, { payload, headers }] of messages.entries()) {
    assertSameBytes(payload, bodies[at]!);
    assert.equal(headers['content-encoding'], undefined);
  }
});

test('[interop I-10] a signed webhook that decodes to too much is 413, is not stored, and its memory is free again', async (t) => {
  const { node, post, stored } = await setUp(t);
  const large = {
    // A thousandth of its size.
    'above the ratio of 10': signed('github', 'zeros', { bytes: 900 * KIB }),
    // Half of its size.
    'above 1 MiB': signedBody('github', 'hex', Buffer.from(Buffer.from(bytesOf(600 * KIB)).toString('hex'))),
  };
  for (const [coding, encode] of Object.entries(CODINGS))
    for (const [name, delivery] of Object.entries(large)) {
      const reply = await post(delivery, coding, encode(delivery.body));
      assertRefusal(reply, 413, 'decompress_cap');
      assert.equal(reply.headers['x-reason'], 'DECOMP_LIMIT', `${coding}, ${name}`);
      await eventually(
        'the memory of the body is free',
        async () => (await node.metric('interop', 'webhook_unverified_bytes')) === 0,
      );
    }
  assert.equal(await stored(), 0);
});
