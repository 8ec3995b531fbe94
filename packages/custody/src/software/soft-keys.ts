/**
 * Keys in this process, as the platform's key objects: their bytes lie outside of the JavaScript heap.
 *
 * Promise: secret bytes exist as an array only while a key is made or loaded, and are zeroed then. A secret is 32 bytes
 * for each part of the algorithm: the seed of FIPS 204, the private key of RFC 8032, the seed of X-Wing, the key itself.
 * ML-DSA signs on the platform's thread pool; Ed25519, twenty times faster than the way there, at once.
 * Bound: a key. Cancellation: what a signal finds already running is thrown away when it ends.
 */
import { createHmac, createPrivateKey, createPublicKey, createSecretKey, sign, type KeyObject } from 'node:crypto';
import { assert, sched } from '@ron/kernel';
import { ALGORITHMS, type Alg, type SigningAlg } from '../algorithms/algorithms.ts';
import type { PublicPart, Signature } from '../backend/backend.ts';
import { openCounted, openXWing, sealCounted, sealXWing } from '../algorithms/envelope.ts';
import { expand } from '../algorithms/expand.ts';
import { spkiOf } from '../algorithms/public-keys.ts';
import { spkiOfXWing, xWingFromSeed, type XWingPrivate } from '../algorithms/x-wing.ts';

export const SECRET_PART_BYTES = 32;

interface Signer {
  readonly alg: SigningAlg;
  readonly key: KeyObject;
}

export type SoftKey =
  | { readonly use: 'sign'; readonly signers: readonly Signer[] }
  | { readonly use: 'x-wing'; readonly pair: XWingPrivate }
  | { readonly use: 'secret'; readonly secret: KeyObject };

/** Fresh secret bytes for a key of this algorithm. The caller zeroes them. */
export function newSecret(alg: Alg): Uint8Array {
  return sched.randomBytes(secretBytes(alg));
}

export function secretBytes(alg: Alg): number {
  return SECRET_PART_BYTES * Math.max(1, ALGORITHMS[alg].signs.length);
}

/** The key of these secret bytes, which stay the caller's to zero. */
export function softKey(alg: Alg, secret: Uint8Array): SoftKey {
  assert(secret.length === secretBytes(alg), `a secret of ${alg} has ${secretBytes(alg)} bytes`);
  const { signs } = ALGORITHMS[alg];
  if (alg === 'x-wing') return { use: 'x-wing', pair: xWingFromSeed(secret) };
  if (signs.length === 0) return { use: 'secret', secret: createSecretKey(secret) };
  const signers = signs.map((part, index) => {
    const at = index * SECRET_PART_BYTES;
    return { alg: part, key: privateKey(part, secret.subarray(at, at + SECRET_PART_BYTES)) };
  });
  return { use: 'sign', signers };
}

function privateKey(alg: SigningAlg, secret: Uint8Array): KeyObject {
  const key = Buffer.from(secret.buffer, secret.byteOffset, secret.length);
  if (alg === 'ed25519') return createPrivateKey({ key, format: 'raw-private', asymmetricKeyType: alg });
  return createPrivateKey({ key, format: 'raw-seed', asymmetricKeyType: alg });
}

export function publicParts(key: SoftKey): PublicPart[] {
  if (key.use === 'sign') {
    return key.signers.map((signer) => ({ alg: signer.alg, pubkey_b64: spkiOf(createPublicKey(signer.key)) }));
  }
  if (key.use === 'secret') return [];
  return [{ alg: 'x-wing', pubkey_b64: spkiOfXWing(key.pair.public).toString('base64') }];
}

export async function signSoftly(key: SoftKey, message: Uint8Array): Promise<Signature[]> {
  assert(key.use === 'sign', 'it signs');
  const signatures: Signature[] = [];
  for (const { alg, key: signer } of key.signers) {
    const signature = alg === 'ed25519' ? sign(null, message, signer) : await signOnPool(message, signer);
    signatures.push({ alg, signature });
  }
  return signatures;
}

function signOnPool(message: Uint8Array, key: KeyObject): Promise<Uint8Array> {
  const parked = sched.park<Uint8Array>('sign');
  sign(null, message, key, (error, signature) => (error === null ? parked.wake(signature) : parked.fail(error)));
  return parked.promise;
}

export function wrapSoftly(key: SoftKey, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Uint8Array {
  assert(key.use !== 'sign', 'it wraps');
  if (key.use === 'x-wing') return sealXWing(key.pair.public, plaintext, aad);
  return sealCounted(key.secret, nonce, plaintext, aad);
}

export function unwrapSoftly(key: SoftKey, wrapped: Uint8Array, aad: Uint8Array): Uint8Array {
  assert(key.use !== 'sign', 'it unwraps');
  return key.use === 'x-wing' ? openXWing(key.pair, wrapped, aad) : openCounted(key.secret, wrapped, aad);
}

export function deriveSoftly(key: SoftKey, label: string, bytes: number): Promise<Uint8Array> {
  assert(key.use === 'secret', 'it derives');
  return expand((data) => createHmac('sha256', key.secret).update(data).digest(), label, bytes);
}
