/** A capability with `body = b3:HASH` accepts the body with that hash and refuses any other before the operation runs. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { blake3 } from '@napi-rs/blake-hash';
import { startService, type TestPassport } from './support.ts';

const boundTo = (bytes: Uint8Array | string): string => `body = b3:${blake3(Buffer.from(bytes)).toString('hex')}`;

describe('body caveats in passport', () => {
  let service: TestPassport;

  before(async () => (service = await startService()));
  after(() => service[Symbol.asyncDispose]());

  const post = async (caveat: string, path: string, body: string | Uint8Array, more = {}): Promise<number> => {
    const token = await service.mint({ caveats: [caveat] });
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...more };
    const init = { method: 'POST', headers, body, duplex: 'half' } as RequestInit;
    const response = await fetch(`${service.url}/v1/passport/${path}`, init);
    const text = await response.text();
    if (response.status === 403) assert.equal((JSON.parse(text) as { code: string }).code, 'forbidden', text);
    return response.status;
  };
  const version = async (): Promise<number> => {
    const { json } = await service.get(`/v1/passport/revocations?audience=storage&nonce=${'n'.repeat(22)}`);
    return (JSON.parse(json.signed) as { document: { version: number } }).document.version;
  };

  test('the right body revokes, another one is refused and revokes nothing', async () => {
    const right = JSON.stringify({ subject: 'bob' });
    const version_before = await version();
    assert.equal(await post(boundTo(right), 'revoke', JSON.stringify({ subject: 'alice' })), 403);
    assert.equal(await version(), version_before);
    assert.equal(await post(boundTo(right), 'revoke', right), 200);
    assert.notEqual(await version(), version_before);
  });

  test('a route whose body states facts refuses another body, and issues for the right one', async () => {
    const right = JSON.stringify({ audience: 'storage', scopes: ['storage:get'] });
    assert.equal(await post(boundTo(right), 'issue', right.replace('get', 'put')), 403);
    assert.equal(await post(boundTo(right), 'issue', right), 201);
  });

  test('the hash of a compressed body is that of the decoded bytes', async () => {
    const body = JSON.stringify({ audience: 'storage', scopes: ['storage:get'], subject: 'carol' });
    const wire = gzipSync(body);
    const encoded = { 'content-encoding': 'gzip' };
    assert.equal(await post(boundTo(wire), 'issue', wire, encoded), 403);
    assert.equal(await post(boundTo(body), 'issue', wire, encoded), 201);
  });

  test('a chunked body is hashed as it is read', async () => {
    const body = JSON.stringify({ audience: 'storage', scopes: ['storage:get'] });
    const pieces = (text: string): Uint8Array =>
      ReadableStream.from([Buffer.from(text.slice(0, 7)), Buffer.from(text.slice(7))]) as unknown as Uint8Array;
    assert.equal(await post(boundTo(body), 'issue', pieces(`${body} `)), 403);
    assert.equal(await post(boundTo(body), 'issue', pieces(body)), 201);
  });

  test('verify returns the verdict of the service for a capability that is bound to a body', async () => {
    const token = await service.mint({ audience: 'storage', scopes: ['storage:put'], caveats: [boundTo('x')] });
    const { json } = await service.post('verify', { token });
    assert.equal(json.ok, true, json.reason);
  });
});
