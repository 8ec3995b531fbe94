/**
 * Deliveries of all schemes through a node of processes, with rotations, forgeries and failures: no secret appears in an answer,
 * a log, the metrics, or a file of the node, in plain text, hex or base64.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { leaks } from '@ron/auth/testing';
import { eventually } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { TestNode } from '../node/node.ts';
import { NO_RATES, PATIENT } from '../node/senders.ts';
import { VARIANTS, type Sent, type Variant } from '../signatures/requests.ts';

/** A secret as an operator enters it, and the bytes that sign. */
interface Secret {
  readonly text: string;
  readonly bytes: Buffer;
}

function newSecret(scheme: string): Secret {
  const bytes = Buffer.from(randomBytes(24).toString('base64url'));
  const text = scheme === 'standard' ? `whsec_${bytes.toString('base64')}` : bytes.toString();
  for (const each of [bytes, text]) leaks.secret(`a secret of ${scheme}`, each);
  return { text, bytes };
}

const SIGNING = VARIANTS.filter(({ name }) => name !== 'standard v1a');
const now = (): string => String(Math.floor(Date.now() / 1000));
const MARKER = 'a body that waits in the spool';

test('no webhook secret appears in an answer, a log, the metrics or a file', async (t) => {
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'mailbox', 'interop'],
    flags: { interop: [...NO_RATES, ...PATIENT] },
  });
  const authorization = `Bearer ${await node.token('interop')}`;
  const seen = async (sent: Promise<Reply>): Promise<Reply> => {
    const reply = await sent;
    leaks.shown('an answer', `${JSON.stringify(reply.headers)}\n${reply.text}`);
    return reply;
  };
  /** On a busy machine the deadline of kms or mailbox may pass. */
  const inTheEnd = async (send: () => Promise<Reply>): Promise<Reply> => {
    let reply: Reply | undefined;
    await eventually('a request succeeds or is refused', async () => {
      reply = await send();
      return reply.status !== 503 && reply.status !== 504;
    });
    return reply!;
  };
  const once = (method: string, path: string, body?: unknown): Promise<Reply> => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const headers = { authorization, ...(body !== undefined && { 'content-type': 'application/json' }) };
    return seen(node.send(method, path, { headers, ...(body !== undefined && { body: text }) }));
  };
  const admin = (method: string, path: string, body?: unknown): Promise<Reply> =>
    inTheEnd(() => once(method, path, body));
  const deliver = async (provider: string, { headers: lines, body }: Sent): Promise<number> => {
    const headers = Object.fromEntries(lines);
    return (await inTheEnd(() => seen(node.send('POST', `/webhooks/${provider}`, { headers, body })))).status;
  };
  const bodyOf = (text: string): Buffer => Buffer.from(JSON.stringify({ text, id: text, event_id: text }));

  /** Every outcome of a delivery and of a change. */
  const exercise = async (variant: Variant, replaced: Secret, second: Secret): Promise<void> => {
    const sample = variant.sign(bodyOf('sample'));
    const { scheme, generic } = sample;
    const path = `/admin/providers/${scheme}`;
    const request = { scheme, ...(generic !== undefined && { generic }) };
    const accepted = scheme === 'slack' ? 200 : 202;
    const signed = (text: string, { bytes }: Secret, time = now()): Sent => variant.sign(bodyOf(text), bytes, time);
    assert.ok((await admin('PUT', path, { ...request, secret: replaced.text })).status < 300);
    assert.equal(await deliver(scheme, signed('first', replaced)), accepted);
    const first = newSecret(scheme);
    assert.equal((await admin('PUT', path, { ...request, secret: first.text })).status, 200);
    assert.equal((await admin('POST', `${path}/rotate`, { secret: second.text })).status, 200);
    for (const secret of [first, second])
      assert.equal(await deliver(scheme, signed(secret.text.slice(-4), secret)), accepted);
    assert.equal((await admin('POST', `${path}/test`)).status, 200);
    assert.equal(await deliver(scheme, signed('forged', newSecret(scheme))), 401);
    assert.equal(await deliver(scheme, signed('replaced', replaced)), 401);
    if (variant.time_header !== undefined)
      assert.equal(await deliver(scheme, signed('late', first, '1700000000')), 401);
    const unsigned = { ...signed('unsigned', first), headers: [] };
    assert.equal(await deliver(scheme, unsigned), 401);
    assert.equal(await deliver('unknown', signed('unknown', first)), 404);
    for (const body of [
      { secret: newSecret(scheme).text, more: 1 },
      { secret: [second.text] },
      { secret: `${second.text} ` },
      `{"secret":"${second.text}",`,
    ])
      assert.equal((await admin('POST', `${path}/rotate`, body)).status, 400);
    assert.equal((await admin('PUT', path, { ...request, secret: second.text, topic: second.text })).status, 400);
  };
  for (const variant of SIGNING) {
    const { scheme } = variant.sign(Buffer.from(''));
    await exercise(variant, newSecret(scheme), newSecret(scheme));
  }

  const github = newSecret('github');
  const [signing] = SIGNING as [Variant];
  assert.equal((await admin('PUT', '/admin/providers/github', { scheme: 'github', secret: github.text })).status, 200);
  await node.kill('mailbox');
  assert.equal(await deliver('github', signing.sign(bodyOf(MARKER), github.bytes)), 202);
  await node.kill('kms');
  const away = await once('PUT', '/admin/providers/other', { scheme: 'github', secret: newSecret('github').text });
  assert.equal(away.status, 503, away.text);
  for (const path of ['/admin/providers', '/admin/providers/github', '/admin/deliveries', '/admin/brownout'])
    assert.equal((await admin('GET', path)).status, 200);
  for (const path of ['/metrics', '/healthz', '/readyz', '/openapi.json']) await seen(node.send('GET', path));

  const isSpooled = async (): Promise<boolean> => (await scan(join(node.dataOf('interop'), 'spool'))).includes(MARKER);
  assert.ok(await isSpooled(), 'the scan reads the spool');
  await node.restart('interop');
  await node.start('kms');
  await node.start('mailbox');
  await eventually('the spool is empty', async () => (await node.metric('interop', 'spool_deliveries')) === 0);
  assert.equal(await node.process('interop').stop(), 0);
  const text = await scan(node.dataOf('interop'));
  for (const expected of ['"delivery_id"', 'rotate secret', 'BAD_ORIGIN']) assert.ok(text.includes(expected), expected);
  for (const name of ['mailbox', 'kms', 'passport'] as const) await scan(node.dataOf(name));
});

/** The contents of all files below a directory, which are searched for secrets at the end. */
async function scan(dir: string): Promise<string> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  assert.ok(files.length > 0, `${dir} has files`);
  const texts = files.map(async ({ parentPath, name }) => {
    const text = await readFile(join(parentPath, name), 'latin1');
    leaks.shown(`the file ${name}`, text);
    return text;
  });
  return (await Promise.all(texts)).join('\n');
}
