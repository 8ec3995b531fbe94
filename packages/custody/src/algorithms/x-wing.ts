/**
 * X-Wing, the general-purpose hybrid KEM of draft-connolly-cfrg-xwing-kem, from the platform's X25519, ML-KEM-768,
 * SHA3-256 and SHAKE256. It is not the X25519MLKEM768 of TLS.
 *
 *   seed (32) --SHAKE256--> ML-KEM seed (64) | X25519 key (32)
 *   public (1216) = ML-KEM public (1184) | X25519 public (32)
 *   ciphertext (1120) = ML-KEM ciphertext (1088) | X25519 ephemeral public (32)
 *   shared = SHA3-256(ML-KEM shared | X25519 shared | X25519 ephemeral | X25519 public | label)
 *
 * Contract: the shared secret is safe while one of the two algorithms is. Private keys are the platform's key objects;
 * intermediate secrets are zeroed. A call takes about 0.1 ms.
 */
import {
  createPrivateKey,
  createPublicKey,
  decapsulate,
  diffieHellman,
  encapsulate,
  generateKeyPairSync,
  hash,
  type KeyObject,
} from 'node:crypto';
import { RonError } from '@ron/kernel';

export const X_WING_SEED_BYTES = 32;
export const X_WING_PUBLIC_BYTES = 1216;
export const X_WING_CIPHERTEXT_BYTES = 1120;

const MLKEM_PUBLIC_BYTES = 1184;
const MLKEM_CIPHERTEXT_BYTES = 1088;
const MLKEM_SEED_BYTES = 64;
const EXPANDED_BYTES = 96;
/** The label of the draft: \.//^\ */
const LABEL = Buffer.from('5c2e2f2f5e5c', 'hex');
/** DER of a SubjectPublicKeyInfo with OID 1.3.6.1.4.1.62253.25722, up to the key. */
const SPKI_PREFIX = Buffer.from('308204d4300d060b2b0601040183e62d81c87a038204c100', 'hex');

export interface XWingPrivate {
  readonly mlkem: KeyObject;
  readonly x25519: KeyObject;
  /** Raw bytes, `X_WING_PUBLIC_BYTES` of them. */
  readonly public: Uint8Array;
}

/** Derives the key pair of a seed. The caller keeps ownership of the seed. */
export function xWingFromSeed(seed: Uint8Array): XWingPrivate {
  const expanded = hash('shake256', seed, { outputEncoding: 'buffer', outputLength: EXPANDED_BYTES });
  try {
    const mlkem = createPrivateKey({
      key: expanded.subarray(0, MLKEM_SEED_BYTES),
      format: 'raw-seed',
      asymmetricKeyType: 'ml-kem-768',
    });
    const x25519 = createPrivateKey({
      key: expanded.subarray(MLKEM_SEED_BYTES),
      format: 'raw-private',
      asymmetricKeyType: 'x25519',
    });
    return { mlkem, x25519, public: Buffer.concat([rawPublic(mlkem), rawPublic(x25519)]) };
  } finally {
    expanded.fill(0);
  }
}

/** Makes a fresh shared secret for a public key. The caller owns the secret and zeroes it. */
export function xWingEncapsulate(publicKey: Uint8Array): { shared: Buffer; ciphertext: Buffer } {
  const to = splitPublic(publicKey);
  const ephemeral = generateKeyPairSync('x25519');
  const x25519_shared = diffieHellman({ privateKey: ephemeral.privateKey, publicKey: to.x25519 });
  const { sharedKey, ciphertext } = encapsulate(to.mlkem);
  const x25519_ciphertext = rawPublic(ephemeral.publicKey);
  const shared = combine(sharedKey, x25519_shared, x25519_ciphertext, to.x25519_raw);
  return { shared, ciphertext: Buffer.concat([ciphertext, x25519_ciphertext]) };
}

/** Recovers the shared secret of a ciphertext. A ciphertext for another key gives a different secret, or throws. */
export function xWingDecapsulate(key: XWingPrivate, ciphertext: Uint8Array): Buffer {
  if (ciphertext.length !== X_WING_CIPHERTEXT_BYTES) throw new RonError('validation', 'not an X-Wing ciphertext');
  const x25519_ciphertext = ciphertext.subarray(MLKEM_CIPHERTEXT_BYTES);
  const mlkem_shared = decapsulate(key.mlkem, ciphertext.subarray(0, MLKEM_CIPHERTEXT_BYTES));
  const x25519_shared = diffieHellman({ privateKey: key.x25519, publicKey: x25519Public(x25519_ciphertext) });
  return combine(mlkem_shared, x25519_shared, x25519_ciphertext, key.public.subarray(MLKEM_PUBLIC_BYTES));
}

export function spkiOfXWing(publicKey: Uint8Array): Buffer {
  return Buffer.concat([SPKI_PREFIX, publicKey]);
}

export function isSpkiOfXWing(der: Uint8Array): boolean {
  if (der.length !== SPKI_PREFIX.length + X_WING_PUBLIC_BYTES) return false;
  return SPKI_PREFIX.equals(der.subarray(0, SPKI_PREFIX.length));
}

/** Zeroes both secrets. */
function combine(mlkem: Buffer, x25519: Buffer, x25519_ciphertext: Uint8Array, x25519_public: Uint8Array): Buffer {
  const input = Buffer.concat([mlkem, x25519, x25519_ciphertext, x25519_public, LABEL]);
  const shared = hash('sha3-256', input, 'buffer');
  for (const secret of [mlkem, x25519, input]) secret.fill(0);
  return shared;
}

function splitPublic(key: Uint8Array): { mlkem: KeyObject; x25519: KeyObject; x25519_raw: Uint8Array } {
  if (key.length !== X_WING_PUBLIC_BYTES) throw new RonError('validation', 'not an X-Wing public key');
  const x25519_raw = key.subarray(MLKEM_PUBLIC_BYTES);
  const mlkem = createPublicKey({
    key: Buffer.from(key.subarray(0, MLKEM_PUBLIC_BYTES)),
    format: 'raw-public',
    asymmetricKeyType: 'ml-kem-768',
  });
  return { mlkem, x25519: x25519Public(x25519_raw), x25519_raw };
}

function x25519Public(raw: Uint8Array): KeyObject {
  return createPublicKey({ key: Buffer.from(raw), format: 'raw-public', asymmetricKeyType: 'x25519' });
}

function rawPublic(key: KeyObject): Buffer {
  return (key.type === 'private' ? createPublicKey(key) : key).export({ format: 'raw-public' });
}
