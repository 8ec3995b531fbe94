import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CloudBackend, type CloudBackendInit } from '../src/index.ts';
import { KmsServer } from '../src/testing/index.ts';
import { backendContract, rejectsWith } from './contract.ts';

const { signal } = new AbortController();
/** The server of the tests speaks plain HTTP on loopback. */
const egress = { networks: ['127.0.0.0/8'] };
const credentials = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'not a real one' };

backendContract('cloud by the AWS KMS protocol', async () => {
  const server = await KmsServer.start();
  const open = (): Promise<CloudBackend> =>
    CloudBackend.open({ region: 'eu-north-1', endpoint: server.endpoint, credentials, egress, signal });
  let backend = await open();
  return {
    backend,
    reopen: async () => (backend = await open()),
    async close() {
      await backend.close();
      await server.close();
    },
  };
});

describe('a cloud that is away', () => {
  const open = (endpoint: string, init: Partial<CloudBackendInit> = {}): Promise<CloudBackend> =>
    CloudBackend.open({ region: 'eu-north-1', endpoint, credentials, egress, signal, ...init });

  test('is refused at once while it does not answer as it should, and comes back by itself', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    const { key } = await backend.create('aes-256-gcm', '', signal);
    const wrap = (): Promise<Uint8Array> => backend.wrap(key, Buffer.from('plain'), Buffer.alloc(0), signal);
    server.mood = 'broken';
    await rejectsWith('not_ready', wrap());
    assert.equal(backend.state().ok, false);
    const asked = server.requests.length;
    for (let call = 0; call < 20; call++) await rejectsWith('not_ready', wrap());
    assert.ok(server.requests.length - asked <= 2, 'most are refused without asking');
    server.mood = 'well';
    await backend.probe(signal);
    assert.deepEqual(backend.state(), { ok: true, reason: '' });
    await wrap();
  });

  test('a silent one costs a caller no more than the time that it has', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint, { call_ms_max: 200 });
    const { key } = await backend.create('hmac-sha256', '', signal);
    server.mood = 'silent';
    await rejectsWith('timeout', backend.derive(key, 'label', 32, signal));
    assert.equal(backend.state().ok, false);
    const reason = new Error('enough');
    const controller = new AbortController();
    const kept = backend.probe(controller.signal);
    controller.abort(reason);
    await assert.rejects(kept, reason);
  });

  test('one that limits the rate is busy, not away', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    server.mood = 'throttled';
    await rejectsWith('busy', backend.create('aes-256-gcm', '', signal));
    assert.equal(backend.state().ok, true);
  });

  test('nobody at the address is said when it is opened', async () => {
    const server = await KmsServer.start();
    const { endpoint } = server;
    await server.close();
    await rejectsWith('not_ready', open(endpoint));
  });

  test('an endpoint in a network that is not opened is not called', async () => {
    await using server = await KmsServer.start();
    await assert.rejects(open(server.endpoint, { egress: {} }), /loopback and its network is not opened/);
    await assert.rejects(open('ftp://127.0.0.1/'), { code: 'validation' });
    assert.equal(server.requests.length, 0);
  });

  test('what is wrapped, and the data that is bound, never travel', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    const { key } = await backend.create('aes-256-gcm', '', signal);
    const wrapped = await backend.wrap(key, Buffer.from('the plaintext'), Buffer.from('the data'), signal);
    await backend.unwrap(key, wrapped, Buffer.from('the data'), signal);
    const sent = server.bodies.join('\n');
    for (const secret of ['the plaintext', 'the data']) {
      assert.ok(!sent.includes(secret) && !sent.includes(Buffer.from(secret).toString('base64')));
    }
  });
});
