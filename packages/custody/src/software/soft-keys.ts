/**
 * Keys in this process, as platform key objects: their bytes are outside of the JavaScript heap.
 *
 * Contract: secret bytes exist as an array only while a key is created or loaded, and are then zeroed. A secret has 32 bytes
 * per part of the algorithm: the seed of FIPS 204, the private key of RFC 8032, the seed of X-Wing, or the key itself.
 * ML-DSA signs on the platform's thread pool. Ed25519 signs synchronously: a round trip to the pool takes twenty times longer.
 * Cancellation: a signature in progress completes and is discarded.
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

/** Generates secret bytes for a key of this algorithm. The caller zeroes them. */
export function newSecret(alg: Alg): Uint8Array {
  return sched.randomBytes(secretBytes(alg));
}

export function secretBytes(alg: Alg): number {
  return SECRET_PART_BYTES * Math.max(1, ALGORITHMS[alg].signs.length);
}

/** Loads a key from secret bytes. The caller keeps ownership of the bytes and zeroes them. */
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

export async function softSign(key: SoftKey, message: Uint8Array): Promise<Signature[]> {
  assert(key.use === 'sign', 'the key signs');
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

export function softWrap(key: SoftKey, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Uint8Array {
  assert(key.use !== 'sign', 'the key wraps');
  if (key.use === 'x-wing') return sealXWing(key.pair.public, plaintext, aad);
  return sealCounted(key.secret, nonce, plaintext, aad);
}

export function softUnwrap(key: SoftKey, wrapped: Uint8Array, aad: Uint8Array): Uint8Array {
  assert(key.use !== 'sign', 'the key unwraps');
  return key.use === 'x-wing' ? openXWing(key.pair, wrapped, aad) : openCounted(key.secret, wrapped, aad);
}

export function softDerive(key: SoftKey, label: string, bytes: number): Promise<Uint8Array> {
  assert(key.use === 'secret', 'the key derives');
  return expand((data) => createHmac('sha256', key.secret).update(data).digest(), label, bytes);
}
