/** The generated document against real answers: it lists every route with its scope, and answers have the shape it promises. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Ajv } from 'ajv';
import { eventually, tempDir } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { makePmtiles } from './packs/make-pmtiles.ts';
import { startService } from './support.ts';

interface Operation {
  readonly summary: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, { schema: object }>> }>>;
}

const SCOPES: Readonly<Record<string, string | undefined>> = {
  'GET /edge/assets/{*}': 'edge:get',
  'OPTIONS /edge/assets/{*}': undefined,
  'GET /edge/packs': 'edge:admin',
  'PUT /edge/packs/{name}': 'edge:admin',
  'DELETE /edge/packs/{name}': 'edge:admin',
  'POST /edge/purge': 'edge:admin',
  'GET /edge/why': 'edge:admin',
  'GET /edge/fills/checkpoint': 'edge:admin',
  'GET /edge/map/{name}': 'edge:get',
};

test('the document lists the routes of edge with their scopes, and their answers fit', async () => {
  await using temp = await tempDir();
  await mkdir(join(temp.path, 'packs'));
  const pack = makePmtiles({ tiles: [{ z: 0, x: 0, y: 0, bytes: Buffer.from('tile') }], type: 'png' });
  await writeFile(join(temp.path, 'packs', 'p.pmtiles'), pack);
  await using service = await startService({ dir: temp.path, flags: ['--auth.reads=true'] });
  await eventually('the pack is mounted', () => service.edge.packs.list().length === 1);
  const { json } = await service.send('GET', '/openapi.json');
  const operations = new Map<string, Operation>();
  for (const [path, methods] of Object.entries<Record<string, Operation>>(json.paths))
    for (const [method, operation] of Object.entries(methods))
      operations.set(`${method.toUpperCase()} ${path}`, operation);
  for (const [name, scope] of Object.entries(SCOPES)) {
    const operation = operations.get(name);
    assert.ok(operation, `${name} is in ${[...operations.keys()].join(', ')}`);
    assert.deepEqual(operation.security, scope === undefined ? undefined : [{ capability: [scope] }], name);
    assert.ok(operation.summary.length > 10, name);
  }
  const statuses = Object.keys(operations.get('GET /edge/assets/{*}')!.responses).map(Number);
  assert.deepEqual(statuses, [200, 204, 206, 304, 400, 403, 404, 412, 413, 416, 429, 502, 503, 504]);
  const ajv = new Ajv({ strict: false });
  const headers = await service.allow();
  const fits = (name: string, reply: Reply, status: number): void => {
    assert.equal(reply.status, status, `${name}: ${reply.text.slice(0, 300)}`);
    const schema = operations.get(name)!.responses[status]?.content?.['application/json']?.schema;
    assert.ok(schema, `${name} documents ${status}`);
    assert.ok(ajv.validate(schema, reply.json), `${name}: ${ajv.errorsText()}`);
  };
  const send = (method: string, path: string, body?: string | Uint8Array): Promise<Reply> => {
    const type = typeof body === 'string' ? { 'content-type': 'application/json' } : {};
    return service.send(method, path, { headers: { ...headers, ...type }, ...(body !== undefined && { body }) });
  };
  fits('GET /edge/packs', await send('GET', '/edge/packs'), 200);
  fits('PUT /edge/packs/{name}', await send('PUT', '/edge/packs/q', pack), 201);
  fits('POST /edge/purge', await send('POST', '/edge/purge', '{"prefix":"live/"}'), 200);
  fits('GET /edge/why', await send('GET', '/edge/why?path=pack/p/0/0/0.png'), 200);
  assert.equal((await send('DELETE', '/edge/packs/q')).status, 204);
  for (const [path, status] of [
    ['p/0/0/0.png', 200],
    ['p.json', 200],
    ['p.pmtiles', 200],
    ['none.json', 404],
  ] as const)
    assert.equal((await send('GET', `/edge/assets/pack/${path}`)).status, status, path);
});
