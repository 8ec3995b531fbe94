/** The generated OpenAPI document against real answers: every operation is listed, and answers match their schema. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Schema from 'typebox/schema';
import { BATCH_MEDIA_TYPE } from '@ron/proto';
import { startService } from '../support.ts';

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}
interface Operation {
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}

test('every operation answers as documented and names its scope', async () => {
  await using mailbox = await startService();
  const { paths } = (await mailbox.send('GET', '/openapi.json')).json as {
    paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const answered = new Set<string>();
  const check = async (scope: string, method: string, template: string, to: string, status: number, body?: unknown) => {
    const operation = paths[template]?.[method.toLowerCase()];
    assert.ok(operation, `${method} ${template} is in the document`);
    assert.equal(operation.security?.[0]?.['capability']?.[0], `mailbox:${scope}`, template);
    const reply = await mailbox.call(method, to, body);
    assert.equal(reply.status, status, `${method} ${to}: ${reply.text}`);
    const accepts = operation.requestBody?.content?.['application/json']?.schema;
    if (accepts !== undefined && body !== undefined) assert.ok(Schema.Check(accepts as never, body), template);
    const schema = operation.responses[String(status)]?.content?.['application/json']?.schema;
    const fits: boolean = schema !== undefined && Schema.Check(schema as never, reply.json);
    assert.ok(fits, `${template}: ${reply.text}`);
    answered.add(`${method} ${template}`);
    return reply.json;
  };
  const at = '/v1/mailbox/{topic}';
  const jobs = '/v1/mailbox/jobs';
  const stored = { topic: 'jobs', payload: 'YQ==', key: 'k', headers: { a: 'b' }, idempotency_key: 'i', delay_ms: 0 };
  const other = { topic: 'jobs', payload: 'YQ==', id: '01J9ZK3Q7BC4D8WZ1V00A7K2M4' };

  await check('admin', 'PUT', at, jobs, 200, { max_deliveries: 12 });
  await check('send', 'POST', '/v1/mailbox/send', '/v1/mailbox/send', 200, {
    messages: [stored, stored, other, { ...stored, payload: '' }],
  });
  const headers = { ...(await mailbox.allow()), 'idempotency-key': 'single' };
  for (const status of [201, 200]) {
    const reply = await mailbox.send('POST', jobs, { headers, body: 'x' });
    assert.equal(reply.status, status);
    const schema = paths[at]!['post']!.responses[String(status)]!.content!['application/json']!.schema;
    assert.ok(Schema.Check(schema as never, reply.json), reply.text);
  }
  answered.add(`POST ${at}`);
  await check('admin', 'GET', `${at}/peek`, `${jobs}/peek?limit=5`, 200);
  const { messages } = await check('receive', 'POST', `${at}/receive`, `${jobs}/receive`, 200, { max: 3 });
  assert.equal(messages.length, 3);
  const [acked, nacked, extended] = messages.map(({ token }: { token: string }) => token);
  await check('receive', 'POST', `${at}/ack`, `${jobs}/ack`, 200, { tokens: [acked, 'x'] });
  await check('receive', 'POST', `${at}/extend`, `${jobs}/extend`, 200, { tokens: [extended], visibility_ms: 1000 });
  const dead = { tokens: [nacked, extended], dead: true, error: 'e', delay_ms: 5 };
  await check('receive', 'POST', `${at}/nack`, `${jobs}/nack`, 200, dead);
  await check('read', 'GET', `${at}/dlq`, `${jobs}/dlq?limit=1`, 200);
  await check('read', 'GET', at, jobs, 200);
  for (const path of ['/v1/mailbox', '/v1/mailbox/']) await check('read', 'GET', path, path, 200);
  await check('admin', 'POST', `${at}/dlq/replay`, `${jobs}/dlq/replay`, 200, { limit: 1 });
  await check('admin', 'GET', `${at}/peek`, `${jobs}/peek`, 200);
  await check('admin', 'DELETE', `${at}/dlq`, `${jobs}/dlq`, 200);
  const { id } = await check('admin', 'POST', '/admin/prove', '/admin/prove', 202);
  await check('admin', 'GET', '/admin/tasks', '/admin/tasks', 200);
  await check('admin', 'GET', '/admin/tasks/{id}', `/admin/tasks/${id}`, 200);

  const batches = (each: Content | undefined): boolean => each?.content?.[BATCH_MEDIA_TYPE] !== undefined;
  assert.ok(batches(paths['/v1/mailbox/send']!['post']!.requestBody));
  for (const [template, method] of [
    ['receive', 'post'],
    ['peek', 'get'],
  ] as const)
    assert.ok(batches(paths[`${at}/${template}`]![method]!.responses['200']));

  const common = ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'];
  const promised = Object.entries(paths).flatMap(([template, operations]) =>
    common.includes(template) ? [] : Object.keys(operations).map((method) => `${method.toUpperCase()} ${template}`),
  );
  assert.deepEqual(
    promised.filter((name) => !answered.has(name)),
    [],
  );
});
