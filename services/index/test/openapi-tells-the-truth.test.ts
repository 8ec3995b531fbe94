/** The generated OpenAPI document against real answers: every operation is listed, and answers match their schema. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressToCid, formatAddress } from '@ron/proto';
import Schema from 'typebox/schema';
import { signedDto } from '../src/publish/name-dto.ts';
import { nameSigner } from '../src/publish/testing.ts';
import { AMNESIA, startService } from './support.ts';

interface Operation {
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

test('every operation answers as documented and names its scope', async () => {
  await using service = await startService({ flags: [...AMNESIA, '--index.storage_url=http://127.0.0.1:7101'] });
  const { paths } = (await service.send('GET', '/openapi.json')).json as {
    paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const answered = new Set<string>();
  const check = async (
    scope: string | null,
    method: string,
    template: string,
    to: string,
    status: number,
    body?: unknown,
  ) => {
    const operation = paths[template]?.[method.toLowerCase()];
    assert.ok(operation, `${method} ${template} is in the document`);
    assert.equal(operation.security?.[0]?.['capability']?.[0] ?? null, scope, template);
    const reply = await service.call(method, to, body);
    assert.equal(reply.status, status, `${method} ${to}: ${reply.text}`);
    const schema = operation.responses[String(status)]?.content?.['application/json']?.schema;
    const isJson = reply.headers['content-type']?.startsWith('application/json') === true;
    assert.equal(schema !== undefined, isJson, `${template}: exactly the JSON answers have a schema`);
    if (schema !== undefined) assert.ok(Schema.Check(schema as never, reply.json), `${template}: ${reply.text}`);
    answered.add(`${method} ${template}`);
    return reply.json;
  };
  const address = formatAddress(new Uint8Array(32).fill(7));
  const signer = nameSigner();
  const record = signer.record('docs/a', { value: address });
  const { key } = record;
  const dto = signedDto(record);

  await check('index:announce', 'POST', '/announce', '/announce', 200, {
    entries: [{ address, size: 1, media_type: 'text/plain' }],
  });
  await check('index:admin', 'PUT', '/trust/{*}', '/trust/docs', 204, { key });
  await check('index:admin', 'GET', '/trust', '/trust', 200);
  await check('index:name', 'PUT', '/names/{*}', '/names/docs/a', 201, dto);
  await check('index:name', 'PUT', '/names/{*}', '/names/docs/a', 200, dto);
  await check(null, 'GET', '/names/{*}', '/names/docs/a?history=1', 200);
  await check('index:name', 'GET', '/names', '/names?prefix=docs', 200);
  for (const target of [address, 'name:docs/a', `name:docs/a@${key}`, `${address}?receipt=1`, `${address}?fresh=1`])
    await check(null, 'GET', '/resolve/{*}', `/resolve/${target}`, 200);
  await check(null, 'GET', '/providers/{address}', `/providers/${address}?limit=1&min_freshness=60`, 200);
  await check(null, 'GET', '/routing/v1/providers/{cid}', `/routing/v1/providers/${addressToCid(address)}`, 200);
  await check('index:admin', 'DELETE', '/trust/{*}', '/trust/docs', 204);
  await check('index:admin', 'GET', '/log/checkpoint', '/log/checkpoint', 200);
  await check('index:admin', 'GET', '/log/tile/{*}', '/log/tile/entries/000.p/1', 200);
  await check('index:pin', 'POST', '/admin/pin', '/admin/pin', 204, { key: address });
  await check('index:pin', 'POST', '/admin/unpin', '/admin/unpin', 204, { key: address });
  const { id } = await check('index:admin', 'POST', '/admin/reindex', '/admin/reindex', 202);
  await check('index:admin', 'GET', '/admin/tasks', '/admin/tasks', 200);
  await check('index:admin', 'GET', '/admin/tasks/{id}', `/admin/tasks/${id}`, 200);
  await check('index:admin', 'GET', '/admin/dht', '/admin/dht', 200);

  const common = ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'];
  const promised = Object.entries(paths).flatMap(([template, operations]) =>
    common.includes(template) ? [] : Object.keys(operations).map((method) => `${method.toUpperCase()} ${template}`),
  );
  assert.deepEqual(
    promised.filter((name) => !answered.has(name)),
    [],
  );
});
