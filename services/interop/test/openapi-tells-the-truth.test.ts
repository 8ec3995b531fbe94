/** The generated OpenAPI document against real answers: every operation is listed, and answers match their schema. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Schema from 'typebox/schema';
import { INTEROP_LIMITS } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { addProvider, PATIENT, signed, type SignedDelivery } from './node/senders.ts';
import { TestNode } from './node/node.ts';

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}
interface Operation {
  readonly summary: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>;

const SCOPES: Readonly<Record<string, string | undefined>> = {
  'POST /webhooks/{provider}': undefined,
  'POST /put': 'interop:put',
  'GET /o/{addr}': undefined,
  'GET /receipts/{id}': 'interop:get',
  'GET /admin/providers': 'interop:admin',
  'GET /admin/providers/{name}': 'interop:admin',
  'PUT /admin/providers/{name}': 'interop:admin',
  'DELETE /admin/providers/{name}': 'interop:admin',
  'POST /admin/providers/{name}/rotate': 'interop:admin',
  'POST /admin/providers/{name}/test': 'interop:admin',
  'GET /admin/brownout': 'interop:admin',
  'PUT /admin/brownout': 'interop:admin',
  'GET /admin/deliveries': 'interop:admin',
  'GET /admin/events': 'interop:admin',
};
/** Of every service. */
const HEALTH = ['GET /healthz', 'GET /readyz', 'GET /metrics', 'GET /version', 'GET /openapi.json'];
const SECRET = 'another secret of enough bytes';
const ONE = '/admin/providers/hub';
const JSON_TYPE = { 'content-type': 'application/json' } as const;

class Document {
  readonly #operations: ReadonlyMap<string, Operation>;

  constructor(paths: Paths) {
    const all = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const),
    );
    this.#operations = new Map(all);
  }

  get names(): readonly string[] {
    return [...this.#operations.keys()];
  }

  operation(name: string): Operation {
    const operation = this.#operations.get(name);
    assert.ok(operation, `${name} is in ${this.names.join(', ')}`);
    return operation;
  }

  /** The answer has the documented status, and fits its schema. */
  fits(name: string, reply: Reply, status: number): void {
    assert.equal(reply.status, status, `${name}: ${reply.text.slice(0, 300)}`);
    const schema = this.operation(name).responses[status]?.content?.['application/json']?.schema;
    assert.ok(schema, `${name} documents ${status}`);
    const fits: boolean = Schema.Check(schema as never, reply.json);
    assert.ok(fits, `${name}: ${reply.text}`);
  }

  /** The answer has a status that is documented without a schema. */
  lists(name: string, reply: Reply, status: number): void {
    assert.equal(reply.status, status, `${name}: ${reply.text.slice(0, 300)}`);
    const documented = this.operation(name).responses[status];
    assert.ok(documented, `${name} documents ${status}`);
    assert.equal(documented.content, undefined, `${name} documents ${status} without a schema`);
  }
}

test('every operation answers as documented and names its scope', async (t) => {
  const node = await TestNode.start(t, { inside: {}, flags: { interop: PATIENT } });
  const document = new Document((await node.send('GET', '/openapi.json')).json.paths);
  assert.deepEqual(document.names.toSorted(), [...Object.keys(SCOPES), ...HEALTH].toSorted());
  for (const [name, scope] of Object.entries(SCOPES)) {
    const { security, summary } = document.operation(name);
    assert.deepEqual(security, scope === undefined ? undefined : [{ capability: [scope] }], name);
    assert.ok(summary.length > 10, name);
  }
  const authorization = `Bearer ${await node.token('interop')}`;
  const call = (method: string, path: string, body?: unknown): Promise<Reply> =>
    node.send(method, path, {
      headers: { authorization, ...(body !== undefined && JSON_TYPE) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const post = ({ provider, headers, body }: SignedDelivery): Promise<Reply> =>
    node.send('POST', `/webhooks/${provider}`, { headers, body });

  await eventually('capabilities are accepted', async () => (await call('GET', '/admin/brownout')).status === 200);
  document.fits('PUT /admin/providers/{name}', await call('PUT', ONE, { scheme: 'github', secret: SECRET }), 201);
  document.fits('PUT /admin/providers/{name}', await call('PUT', ONE, { scheme: 'github' }), 200);
  const rotation = { secret: `${SECRET} again`, overlap_ms: 60_000 };
  document.fits('POST /admin/providers/{name}/rotate', await call('POST', `${ONE}/rotate`, rotation), 200);
  document.fits('GET /admin/providers/{name}', await call('GET', ONE), 200);
  document.fits('GET /admin/providers', await call('GET', '/admin/providers'), 200);
  document.fits('POST /admin/providers/{name}/test', await call('POST', `${ONE}/test`), 200);
  document.fits('GET /admin/brownout', await call('GET', '/admin/brownout'), 200);
  document.fits('PUT /admin/brownout', await call('PUT', '/admin/brownout', { mode: 'auto', why: 'a test' }), 200);
  const put = await node.send('POST', '/put', { headers: await node.user(), body: 'an object' });
  document.fits('POST /put', put, 201);
  document.fits('POST /put', await node.send('POST', '/put', { headers: await node.user(), body: 'an object' }), 200);
  const read = (headers = {}): Promise<Reply> => node.send('GET', `/o/${put.json.address}`, { headers });
  const object = await read();
  document.lists('GET /o/{addr}', object, 200);
  assert.equal(object.text, 'an object');
  document.lists('GET /o/{addr}', await read({ range: 'bytes=0-1' }), 206);
  document.lists('GET /o/{addr}', await read({ 'if-none-match': object.headers.etag }), 304);

  await addProvider(await node.admin(), 'github');
  const delivery = signed('github', 'one');
  const accepted = await post(delivery);
  document.fits('POST /webhooks/{provider}', accepted, 202);
  document.fits('POST /webhooks/{provider}', await post(delivery), 202);
  assert.equal((await post({ ...delivery, headers: {} })).status, 401);
  await addProvider(await node.admin(), 'slack');
  const slack = await post(signed('slack', 'one'));
  document.lists('POST /webhooks/{provider}', slack, 200);
  assert.deepEqual([slack.text, slack.headers['x-ron-receipt']?.length], ['', 26]);
  const receipt = `/receipts/${accepted.json.receipt}`;
  await eventually('kms signs the receipt', async () => (await call('GET', `${receipt}?wait=1`)).status === 200);
  document.fits('GET /receipts/{id}', await call('GET', receipt), 200);
  await node.kill('kms');
  const unsigned = (await post(signed('github', 'two'))).json.receipt;
  document.fits('GET /receipts/{id}', await call('GET', `/receipts/${unsigned}`), 202);

  const page = await call('GET', '/admin/deliveries');
  document.fits('GET /admin/deliveries', page, 200);
  assert.deepEqual(
    new Set(page.json.deliveries.map(({ outcome }: { outcome: string }) => outcome)),
    new Set(['accepted', 'duplicate', 'refused']),
  );
  document.lists('DELETE /admin/providers/{name}', await call('DELETE', ONE), 204);
});

test('a page of deliveries that is too long is refused, not shortened', async (t) => {
  const node = await TestNode.start(t, { services: ['kms', 'passport', 'interop'], inside: {} });
  const headers = { authorization: `Bearer ${await node.token('interop')}` };
  const page = (limit: number): Promise<Reply> => node.send('GET', `/admin/deliveries?limit=${limit}`, { headers });
  const { deliveries_page } = INTEROP_LIMITS;
  await eventually('capabilities are accepted', async () => (await page(deliveries_page)).status === 200);
  for (const limit of [deliveries_page + 1, 0, 5000]) assertRefusal(await page(limit), 400, 'validation');
});
