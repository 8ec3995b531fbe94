/** The generated document against real answers: every operation is there, and answers have the shape it promises. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bytesOf, eventually } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly pattern?: string;
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: Schema }>> }>
  >;
}

/** The violations of a schema by a value; supports the part of JSON Schema that the service uses. */
function problemsOf(value: unknown, schema: Schema, at = '$'): string[] {
  if (schema.type === 'integer') return Number.isSafeInteger(value) ? [] : [`${at} is not an integer`];
  if (schema.type === 'string') {
    if (typeof value !== 'string') return [`${at} is not a string`];
    return schema.pattern === undefined || new RegExp(schema.pattern).test(value) ? [] : [`${at} does not fit`];
  }
  if (schema.type === 'boolean') return typeof value === 'boolean' ? [] : [`${at} is not a boolean`];
  if (schema.type === 'array') {
    if (!Array.isArray(value)) return [`${at} is not an array`];
    return value.flatMap((item, index) => problemsOf(item, schema.items!, `${at}[${index}]`));
  }
  if (schema.type !== 'object') return [];
  if (typeof value !== 'object' || value === null) return [`${at} is not an object`];
  const { properties = {}, required = [], additionalProperties } = schema;
  const found = Object.entries(value);
  return [
    ...required.filter((name) => !Object.hasOwn(value, name)).map((name) => `${at}.${name} is missing`),
    ...found.flatMap(([name, part]) => {
      const known = properties[name];
      if (known !== undefined) return problemsOf(part, known, `${at}.${name}`);
      return additionalProperties === false ? [`${at}.${name} is not promised`] : [];
    }),
  ];
}

describe('the document of the routes', () => {
  let service: TestService;
  let headers: { authorization: string };
  let paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  const answered = new Set<string>();
  const bytes = bytesOf(200_000);
  const path = `/o/${addressOf(bytes)}`;

  before(async () => {
    service = await startService({ dirs: ['a', 'b', 'c'] });
    headers = await service.allow();
    paths = JSON.parse((await service.send('GET', '/openapi.json')).text).paths;
  });
  after(() => service[Symbol.asyncDispose]());

  async function check(
    template: string,
    method: string,
    target: string,
    status: number,
    init: object = {},
  ): Promise<Reply> {
    const operation = paths[template]?.[method.toLowerCase()];
    assert.ok(operation, `${method} ${template} is in the document`);
    assert.ok(operation.summary.length > 10);
    const reply = await service.send(method, target, { headers, ...init });
    assert.equal(reply.status, status, reply.text);
    const schema = operation.responses[String(status)]?.content?.['application/json']?.schema;
    const isJson = reply.headers['content-type']?.startsWith('application/json') === true;
    assert.equal(schema !== undefined, isJson, 'a JSON answer is described, and nothing else is');
    if (schema !== undefined) assert.deepEqual(problemsOf(JSON.parse(reply.text), schema), []);
    answered.add(`${method} ${template}`);
    return reply;
  }

  test('answers have the promised shape', async () => {
    await check('/o', 'POST', '/o', 201, { body: bytes });
    await check('/o', 'POST', '/o', 200, { body: bytes });
    await check('/o/{addr}', 'PUT', path, 200, { body: bytes });
    await check('/o/{addr}', 'GET', path, 200);
    await check('/o/{addr}/manifest', 'GET', `${path}/manifest`, 200);
    await check('/o/{addr}/pin', 'PUT', `${path}/pin`, 204);
    await check('/o/{addr}/pin', 'DELETE', `${path}/pin`, 204);
    const tus = { ...headers, 'tus-resumable': '1.0.0' };
    await check('/uploads', 'OPTIONS', '/uploads', 204);
    const begun = await check('/uploads', 'POST', '/uploads', 201, { headers: { ...tus, 'upload-length': '10' } });
    const upload = begun.headers.location!;
    await check('/uploads/{id}', 'GET', upload, 200, { headers: tus });
    const bytes_type = { 'content-type': 'application/offset+octet-stream' };
    const patch = { ...tus, ...bytes_type, 'upload-offset': '0' };
    await check('/uploads/{id}', 'PATCH', upload, 204, { body: '12345', headers: patch });
    const override = { ...patch, 'upload-offset': '5', 'x-http-method-override': 'PATCH' };
    await check('/uploads/{id}', 'POST', upload, 204, { body: '67890', headers: override });
    await check('/uploads/{id}', 'GET', upload, 200, { headers: tus });
    await check('/uploads/{id}', 'DELETE', upload, 204, { headers: tus });
    await check('/admin/volumes', 'GET', '/admin/volumes', 200);
    await check('/admin/repair', 'GET', '/admin/repair', 200);
    await check('/admin/repair', 'POST', '/admin/repair', 202);
    await check('/admin/scrub', 'POST', '/admin/scrub', 202);
    const named = (name: string): string => `volume=${encodeURIComponent(join(service.dir, name))}`;
    for (const verb of ['drain', 'undrain', 'lose', 'restore']) {
      await check(`/admin/volumes/${verb}`, 'POST', `/admin/volumes/${verb}?${named('a')}`, 200);
    }
    await check('/admin/volumes/remove', 'POST', `/admin/volumes/remove?${named('a')}&force=true`, 200);
    const { id } = JSON.parse((await check('/admin/compact', 'POST', '/admin/compact', 202)).text);
    await check('/admin/tasks', 'GET', '/admin/tasks', 200);
    await eventually('it is done', async () => {
      return JSON.parse((await check('/admin/tasks/{id}', 'GET', `/admin/tasks/${id}`, 200)).text).state === 'done';
    });
  });

  test('every operation of the service is among them', () => {
    const promised = Object.entries(paths).flatMap(([template, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${template}`),
    );
    const health = ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'];
    const missing = promised.filter((name) => !answered.has(name) && !health.includes(name.split(' ')[1]!));
    assert.deepEqual(
      missing.filter((name) => !name.startsWith('HEAD ')),
      [],
    );
  });

  test('operations say which capability they need', () => {
    const scopeOf = (template: string, method: string): string | undefined =>
      paths[template]?.[method]?.security?.[0]?.['capability']?.[0];
    assert.equal(scopeOf('/o/{addr}', 'get'), undefined);
    assert.equal(scopeOf('/o/{addr}', 'put'), 'storage:put');
    assert.equal(scopeOf('/o', 'post'), 'storage:put');
    assert.equal(scopeOf('/o/{addr}/pin', 'delete'), 'storage:pin');
    assert.equal(scopeOf('/admin/compact', 'post'), 'storage:admin');
    assert.equal(scopeOf('/uploads/{id}', 'patch'), 'storage:put');
  });

  test('parameters are named', () => {
    const names = (template: string, method: string): string[] =>
      (paths[template]?.[method]?.parameters ?? []).map((parameter) => `${parameter.in} ${parameter.name}`);
    assert.deepEqual(names('/o/{addr}', 'get').toSorted(), [
      'path addr',
      'query length',
      'query offset',
      'query proof',
    ]);
    assert.deepEqual(names('/admin/tasks/{id}', 'get'), ['path id']);
  });
});
