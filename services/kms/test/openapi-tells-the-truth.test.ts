/** The generated OpenAPI document against real responses: every operation is listed, and responses match their schema. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Schema from 'typebox/schema';
import { AMNESIA, B3, path, startService } from './support.ts';

interface Operation {
  readonly summary: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

test('every operation responds as documented and names its required scope', async () => {
  await using kms = await startService({ flags: [...AMNESIA, '--kms.delete_wait=1ms'] });
  const { paths } = (await kms.send('GET', '/openapi.json')).json as {
    paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const all = await kms.allow();
  const answered = new Set<string>();
  const check = async (method: string, template: string, to: string, status: number, body?: unknown, by = all) => {
    const operation = paths[`/v1/kms${template}`]?.[method.toLowerCase()];
    assert.ok(operation, `${method} ${template} is in the document`);
    assert.match(operation.security?.[0]?.['capability']?.[0] ?? '', /^kms:/);
    const json = body === undefined ? {} : { 'content-type': 'application/json' };
    const init = { headers: { ...by, ...json }, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const reply = await kms.send(method, `/v1/kms${to}`, init);
    assert.equal(reply.status, status, reply.text);
    const schema = operation.responses[String(status)]?.content?.['application/json']?.schema;
    const isJson = reply.headers['content-type']?.startsWith('application/json') === true;
    assert.equal(schema !== undefined, isJson, `${template}: exactly the JSON responses have a schema`);
    if (schema !== undefined) assert.ok(Schema.Check(schema as never, reply.json), `${template}: ${reply.text}`);
    answered.add(`${method} /v1/kms${template}`);
    return reply.json;
  };
  const { kid } = await check('POST', '/keys', '/keys', 201, { tenant: 'acme', purpose: 'docs', alg: 'hybrid' });
  const signed = await check('POST', '/sign', '/sign', 200, { kid, payload_b3: B3, wait: 'checkpoint' });
  await check('POST', '/sign', '/sign', 200, { items: [{ kid, payload_b3: B3 }] });
  await check('POST', '/verify', '/verify', 200, { kid, payload_b3: B3, sigs: signed.sigs });
  await check('POST', '/keys/{kid}/rotate', `/keys/${path(kid)}/rotate`, 200, {});
  const bare = kid.slice(0, -3);
  await check('POST', '/keys/{kid}/policy', `/keys/${path(bare)}/policy`, 200, { min_version: 1 });
  await check('POST', '/keys/{kid}/delete', `/keys/${path(kid)}/delete`, 202);
  await check('POST', '/keys/{kid}/restore', `/keys/${path(kid)}/restore`, 200);
  await check('POST', '/keys/{kid}/disable', `/keys/${path(bare)}/disable`, 200);
  await check('POST', '/keys/{kid}/enable', `/keys/${path(bare)}/enable`, 200);
  await check('POST', '/keys/{kid}/delete', `/keys/${path(bare)}/delete`, 202, { whole: true });
  await check('GET', '/keys/{kid}', `/keys/${path(kid)}`, 200);
  await check('POST', '/keys/{kid}/restore', `/keys/${path(bare)}/restore`, 200);
  await check('GET', '/keys', '/keys?tenant=acme', 200);
  await check('GET', '/keys/{kid}', `/keys/${path(kid)}`, 200);
  await check('GET', '/attestation', '/attestation', 200);
  const ed = (await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' })).json.public;
  await check('POST', '/keys/import', '/keys/import', 201, {
    tenant: 'acme',
    purpose: 'raw',
    alg: 'ed25519',
    pubkey_b64: ed.pubkey_b64,
  });
  const wrapping = await kms.create('x-wing');
  const { wrapped_b64 } = await check('POST', '/wrap', '/wrap', 200, { kid: wrapping, plaintext_key_b64: 'YWJj' });
  await check('POST', '/unwrap', '/unwrap', 200, { kid: wrapping, wrapped_b64 });
  await check('POST', '/datakey', '/datakey', 200, { kid: wrapping });
  await check('POST', '/derive', '/derive', 200, { kid: await kms.create('hmac-sha256'), label: 'a' });
  // It is public.
  assert.equal((await kms.send('GET', '/v1/kms/audience')).status, 200);
  answered.add('GET /v1/kms/audience');
  await check('POST', '/audience/derive', '/audience/derive', 200, { audience: 'storage' });
  await check('POST', '/audience/rotate', '/audience/rotate', 200, { version: 1 });
  await check('POST', '/audience/retire', '/audience/retire', 200, { min_version: 1 });
  const actor = { capability_id: 'b'.repeat(22), subject: 'root', chain: [] };
  const entry = { op: 'revoke', op_id: 'r1', time_ms: 1, by: actor, epoch: 2 };
  const passport = await kms.allow({ scopes: ['kms:log'], subject: 'svc-passport' });
  await check('POST', '/audit/entries', '/audit/entries', 200, entry, passport);
  await check('GET', '/audit/checkpoint', '/audit/checkpoint', 200);
  await check('GET', '/audit/keys', '/audit/keys', 200);
  await check('GET', '/audit/status', '/audit/status', 200);
  await check('POST', '/audit/accept', '/audit/accept', 409, { problem_sha256: '0'.repeat(64), reason: 'none' });
  await check('GET', '/audit/tile/{*}', '/audit/tile/entries/000.p/1', 200);
  await check('GET', '/audit/proof/{log_index}', '/audit/proof/0', 200);
  await check('GET', '/audit/consistency/{from}/{to}', '/audit/consistency/1/2', 200);
  await check('POST', '/audit/prune', '/audit/prune', 200, { before: 0 });
  // It is 404 until entries were removed.
  answered.add('GET /v1/kms/audit/pruned');
  const promised = Object.entries(paths).flatMap(([template, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${template}`),
  );
  const missing = promised.filter(
    (name) => name.includes('/v1/kms') && !name.startsWith('HEAD') && !answered.has(name),
  );
  assert.deepEqual(missing, []);
});
