/** A file of its own: the library of a TPM can be initialised for one TPM per process only. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pkcs11Backend } from '../src/pkcs11/pkcs11-backend.ts';
import { missing, SoftwareTpm, TEST_TOOLS } from '../src/testing/index.ts';

test(
  'a TPM that stores no symmetric keys says that their effective key is computed in process memory',
  { skip: missing(TEST_TOOLS.tpm) },
  async () => {
    const { signal } = new AbortController();
    await using tpm = await SoftwareTpm.start();
    const { module, token, pin } = tpm;
    await using backend = await Pkcs11Backend.open({ name: 'tpm', module, token, pin, sessions: 1, signal });
    for (const alg of ['hmac-sha256', 'aes-256-gcm'] as const)
      assert.match(backend.attestationClassOf(alg), /^tpm:.*; computed in process memory$/);
    const { evidence, attestation_class } = await backend.attest(signal);
    assert.match(attestation_class, /^tpm:/);
    assert.equal(evidence['computed hmac-sha256'], 'process memory');
  },
);
