import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CloudBackend, type CloudBackendInit } from '../src/cloud/cloud-backend.ts';
import { installSched, realSched } from '@ron/kernel';
import { KmsServer } from '../src/testing/index.ts';
import { backendContract, rejectsWith } from './contract.ts';

const { signal } = new AbortController();
/** The test server speaks plain HTTP on loopback. */
const egress = { networks: ['127.0.0.0/8'] };
const credentials = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'not a real one' };

backendContract('cloud over the AWS KMS protocol', async () => {
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

describe('a cloud that is unavailable', () => {
  const open = (endpoint: string, init: Partial<CloudBackendInit> = {}): Promise<CloudBackend> =>
    CloudBackend.open({ region: 'eu-north-1', endpoint, credentials, egress, signal, ...init });

  test('calls are refused immediately while it fails, and it recovers automatically', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    const { key } = await backend.create('aes-256-gcm', '', signal);
    const wrap = (): Promise<Uint8Array> => backend.wrap(key, Buffer.from('plain'), Buffer.alloc(0), signal);
    server.fault = 'broken';
    await rejectsWith('not_ready', wrap());
    assert.equal(backend.state().ok, false);
    const asked = server.requests.length;
    for (let call = 0; call < 20; call++) await rejectsWith('not_ready', wrap());
    assert.ok(server.requests.length - asked <= 2, 'most calls are refused without a request');
    server.fault = 'none';
    await backend.probe(signal);
    assert.deepEqual(backend.state(), { ok: true, reason: '' });
    await wrap();
  });

  test('a silent cloud costs a caller no more than its deadline', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint, { call_ms_max: 200 });
    const { key } = await backend.create('hmac-sha256', '', signal);
    server.fault = 'silent';
    await rejectsWith('timeout', backend.derive(key, 'label', 32, signal));
    assert.equal(backend.state().ok, false);
    const reason = new Error('enough');
    const controller = new AbortController();
    const kept = backend.probe(controller.signal);
    controller.abort(reason);
    await assert.rejects(kept, reason);
  });

  test('throttling is busy, not unavailable', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    server.fault = 'throttled';
    await rejectsWith('busy', backend.create('aes-256-gcm', '', signal));
    assert.equal(backend.state().ok, true);
  });

  test('a key that is denied or disabled is refused alone, without calls, and works again when that is corrected', async (t) => {
    const time = { ms: 0 };
    const previous = installSched({ ...realSched, now_ms: () => realSched.now_ms() + time.ms });
    t.after(() => installSched(previous));
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    const make = async (): Promise<string> => (await backend.create('aes-256-gcm', '', signal)).key;
    const [bad, good] = [await make(), await make()];
    const wrap = (key: string): Promise<Uint8Array> => backend.wrap(key, Buffer.from('plain'), Buffer.alloc(0), signal);
    const wrapped = await wrap(bad);
    for (const [change, message] of [
      [{ denied: true }, /denies access: correct the key policy/],
      [{ state: 'Disabled' }, /is disabled in AWS KMS: enable it there/],
    ] as const) {
      server.set(bad, change);
      await assert.rejects(wrap(bad), { code: 'not_ready', retry_after_ms: 5000, message });
      const asked = server.requests.length;
      for (let call = 0; call < 20; call++) {
        await assert.rejects(backend.unwrap(bad, wrapped, Buffer.alloc(0), signal), { code: 'not_ready', message });
        await assert.rejects(backend.open(bad, 'aes-256-gcm', signal), { code: 'not_ready', message });
      }
      assert.equal(server.requests.length, asked, 'refused without a request');
      assert.deepEqual(backend.state(), { ok: true, reason: '' });
      await wrap(good);
      server.set(bad, { denied: false, state: 'Enabled' });
      time.ms += 5001;
      await wrap(bad);
    }
  });

  test('the class of a key says that data keys are used in process memory', async () => {
    await using server = await KmsServer.start();
    await using backend = await open(server.endpoint);
    assert.equal(backend.attestationClassOf('hmac-sha256'), 'cloud:aws-kms');
    const wrapping = 'cloud:aws-kms; the key of each envelope in process memory';
    assert.equal(backend.attestationClassOf('aes-256-gcm'), wrapping);
    const { evidence } = await backend.attest();
    assert.equal(evidence['computed aes-256-gcm'], 'backend; the key of each envelope in process memory');
  });

  test('a node that may use its keys but not list keys is available', async () => {
    await using server = await KmsServer.start();
    server.deniesListing = true;
    await using backend = await open(server.endpoint);
    const { key } = await backend.create('hmac-sha256', '', signal);
    await backend.probe(signal);
    assert.equal((await backend.derive(key, 'label', 32, signal)).length, 32);
    assert.equal(backend.state().ok, true);
  });

  test('an endpoint without TLS beyond loopback is refused, even in an opened network', async () => {
    const opened = { networks: ['10.0.0.0/8', '127.0.0.0/8'] };
    for (const endpoint of ['http://10.0.0.1', 'http://kms.example', 'http://127.0.0.1.example:80'])
      await assert.rejects(open(endpoint, { egress: opened }), { code: 'validation', message: /must be an https URL/ });
  });

  test('open rejects if nothing listens at the endpoint', async () => {
    const server = await KmsServer.start();
    const { endpoint } = server;
    await server.close();
    await rejectsWith('not_ready', open(endpoint));
  });

  test('an endpoint in a network that is not allowed is not called', async () => {
    await using server = await KmsServer.start();
    await assert.rejects(open(server.endpoint, { egress: {} }), /loopback and its network is not opened/);
    await assert.rejects(open('ftp://127.0.0.1/'), { code: 'validation' });
    assert.equal(server.requests.length, 0);
  });

  test('plaintexts and additional data are never sent', async () => {
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
