import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { ml_kem768_x25519 } from '@noble/post-quantum/hybrid.js';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import {
  isSpkiOfXWing,
  spkiOfXWing,
  X_WING_CIPHERTEXT_BYTES,
  X_WING_PUBLIC_BYTES,
  xWingDecapsulate,
  xWingEncapsulate,
  xWingFromSeed,
} from './x-wing.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const unhex = (text: string): Buffer => Buffer.from(text, 'hex');

/** Appendix C of draft-connolly-cfrg-xwing-kem; long values by their first and last bytes. */
const VECTORS = [
  {
    sk: '7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26',
    pk: ['e2236b35a8c24b39b10aa1323a96a919', 'd9abac8cd049040ef6534'],
    eseed:
      '3cb1eea988004b93103cfb0aeefd2a686e01fa4a58e8a3639ca8a1e3f9ae57e235b8cc873c23dc62b8d260169afa2f75ab916a58d974918835d25e6a435085b2',
    ct: ['b83aa828d4d62b9a83ceffe1d3d3bb1e', 'd354274a079d3e6fb2e15'],
    ss: 'd2df0522128f09dd8e2c92b1e905c793d8f57a54c3da25861f10bf4ca613e384',
  },
  {
    sk: 'badfd6dfaac359a5efbb7bcc4b59d538df9a04302e10c8bc1cbf1a0b3a5120ea',
    pk: ['0333285fa253661508c9fb444852caa4', 'a8a160b8843f1c89c62'],
    eseed:
      '17cda7cfad765f5623474d368ccca8af0007cd9f5e4c849f167a580b14aabdefaee7eef47cb0fca9767be1fda69419dfb927e9df07348b196691abaeb580b32d',
    ct: ['c93beb22326705699bbc3d1d0aa6339b', 'e66312f4ae3ea155b67'],
    ss: 'f2e86241c64d60f6649fbc6c5b7d17180b780a3f34355e64a85749949c45f150',
  },
] as const;

for (const [index, { sk, pk, eseed, ct, ss }] of VECTORS.entries()) {
  test(`published vector ${index + 1}: the key of the seed opens the ciphertext to the shared secret`, () => {
    const key = xWingFromSeed(unhex(sk));
    assert.ok(hex(key.public).startsWith(pk[0]) && hex(key.public).endsWith(pk[1]));
    // The platform encapsulates with its own randomness, so the published randomness goes through the other implementation,
    // whose secret depends on every byte of our public key.
    const made = ml_kem768_x25519.encapsulate(key.public, unhex(eseed));
    assert.ok(hex(made.cipherText).startsWith(ct[0]) && hex(made.cipherText).endsWith(ct[1]));
    assert.equal(hex(made.sharedSecret), ss);
    assert.equal(hex(xWingDecapsulate(key, made.cipherText)), ss);
  });
}

test('it agrees with another implementation in both directions', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (seed) => {
      const ours = xWingFromSeed(seed);
      const theirs = ml_kem768_x25519.keygen(seed);
      assert.equal(hex(ours.public), hex(theirs.publicKey));
      const toUs = ml_kem768_x25519.encapsulate(ours.public);
      assert.equal(hex(xWingDecapsulate(ours, toUs.cipherText)), hex(toUs.sharedSecret));
      const toThem = xWingEncapsulate(theirs.publicKey);
      assert.equal(hex(ml_kem768_x25519.decapsulate(toThem.ciphertext, theirs.secretKey)), hex(toThem.shared));
    }),
    { numRuns: 10 },
  );
});

test('a modified ciphertext gives another secret or is refused; each encapsulation is fresh', () => {
  const key = xWingFromSeed(randomBytes(32));
  const { shared, ciphertext } = xWingEncapsulate(key.public);
  assert.notDeepEqual(xWingEncapsulate(key.public).ciphertext, ciphertext);
  for (const at of [0, 500, 1087, 1088, 1119]) {
    const changed = Uint8Array.from(ciphertext).with(at, (ciphertext[at] as number) ^ 1);
    assert.notEqual(hex(xWingDecapsulate(key, changed)), hex(shared));
  }
});

test('keys and ciphertexts of another length are refused', () => {
  const key = xWingFromSeed(randomBytes(32));
  for (const bytes of [0, X_WING_CIPHERTEXT_BYTES - 1, X_WING_CIPHERTEXT_BYTES + 1]) {
    assert.throws(
      () => xWingDecapsulate(key, new Uint8Array(bytes)),
      (error) => isRonError(error, 'validation'),
    );
  }
  assert.throws(
    () => xWingEncapsulate(new Uint8Array(X_WING_PUBLIC_BYTES - 1)),
    (error) => isRonError(error, 'validation'),
  );
  assert.ok(isSpkiOfXWing(spkiOfXWing(key.public)));
  assert.ok(!isSpkiOfXWing(key.public));
});
