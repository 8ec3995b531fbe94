/** A capability with `body = b3:HASH` accepts the body with that hash and refuses any other before the operation runs. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { blake3 } from '@napi-rs/blake-hash';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { AMNESIA, B3, startService, type TestKms } from './support.ts';

const boundTo = (bytes: Uint8Array | string): string => `body = b3:${blake3(Buffer.from(bytes)).toString('hex')}`;

describe('body caveats in kms', () => {
  let service: TestKms;

  before(async () => (service = await startService({ flags: AMNESIA })));
  after(() => service[Symbol.asyncDispose]());

  const create = (purpose: string): string => JSON.stringify({ tenant: 'acme', purpose, alg: 'ed25519' });
  const post = async (caveats: string[], body: string | Uint8Array, more = {}): Promise<Reply> => {
    const headers = { ...(await service.allow({ caveats })), 'content-type': 'application/json', ...more };
    return await service.send('POST', '/v1/kms/keys', { body, headers });
  };
  const purposes = async (): Promise<string[]> => {
    const { json } = await service.get('/keys?tenant=acme');
    return (json.keys as { kid: string }[]).map(({ kid }) => kid.split('/')[1]!);
  };

  test('the right body creates a key, another one is refused and creates none', async () => {
    const right = create('right');
    assertRefusal(await post([boundTo(right)], create('wrong')), 403, 'forbidden');
    assertRefusal(await post([boundTo(right)], `${right} `), 403, 'forbidden');
    assertRefusal(await post([boundTo(right), 'tenant = acme'], create('wrong')), 403, 'forbidden');
    assert.deepEqual(await purposes(), []);
    const reply = await post([boundTo(right), 'tenant = acme'], right);
    assert.equal(reply.status, 201, reply.text);
    assert.deepEqual(await purposes(), ['right']);
  });

  test('another body than the right one is not signed', async () => {
    const kid = await service.create('ed25519', { purpose: 'sign' });
    const sign = async (bound: unknown, body: unknown): Promise<Reply> =>
      await service.post('/sign', body, await service.allow({ caveats: [boundTo(JSON.stringify(bound))] }));
    const right = { kid, payload_b3: B3 };
    assertRefusal(await sign(right, { kid, payload_b3: B3.replace(/^../, '00') }), 403, 'forbidden');
    const reply = await sign(right, right);
    assert.equal(reply.status, 200, reply.text);
  });

  test('a chunked body is hashed as it is read', async () => {
    const body = create('chunked');
    const chunked = { 'transfer-encoding': 'chunked' };
    assertRefusal(await post([boundTo(body)], create('other'), chunked), 403, 'forbidden');
    assert.equal((await post([boundTo(body)], body, chunked)).status, 201);
  });

  test('the hash of a compressed body is that of the decoded bytes', async () => {
    const body = create('compressed');
    const wire = gzipSync(body);
    const encoded = { 'content-encoding': 'gzip' };
    assertRefusal(await post([boundTo(wire)], wire, encoded), 403, 'forbidden');
    assert.equal((await post([boundTo(body)], wire, encoded)).status, 201);
  });

  test('a request without a body matches only the hash of zero bytes', async () => {
    const list = async (body: string): Promise<Reply> =>
      await service.get('/keys?tenant=acme', await service.allow({ caveats: [boundTo(body)] }));
    assertRefusal(await list('x'), 403, 'forbidden');
    assert.equal((await list('')).status, 200);
  });
});
