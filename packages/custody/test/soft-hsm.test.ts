import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, SoftHsm, TEST_TOOLS } from '../src/testing/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();
const skip = missing(TEST_TOOLS.softhsm);

backendContract(
  'pkcs11 on SoftHSM2',
  async () => {
    const { module, token, pin } = await SoftHsm.start();
    const open = (): Promise<Pkcs11Backend> => Pkcs11Backend.open({ module, token, pin, signal });
    let backend = await open();
    return { backend, reopen: async () => (backend = await open()), close: () => backend.close() };
  },
  { skip },
);

test('the class of a key says where it is computed: signatures and derivations in the token', { skip }, async () => {
  const { module, token, pin } = await SoftHsm.start();
  await using backend = await Pkcs11Backend.open({ module, token, pin, signal });
  assert.match(backend.attestationClassOf('ed25519'), /^token:SoftHSM v2$/);
  assert.match(backend.attestationClassOf('hmac-sha256'), /^token:SoftHSM v2$/);
  assert.match(
    backend.attestationClassOf('aes-256-gcm'),
    /^token:SoftHSM v2; the key of each envelope in process memory$/,
  );
  const { evidence } = await backend.attest(signal);
  assert.equal(evidence['computed hmac-sha256'], 'backend');
  assert.equal(evidence['computed aes-256-gcm'], 'backend; the key of each envelope in process memory');
});
