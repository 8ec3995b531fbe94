/**
 * The secret of a provider, as an operator enters it.
 *
 * Contract: `standard` takes `whsec_<base64>` (HMAC) or `whpk_<base64>` (Ed25519 public key), which are decoded. In all other
 * schemes the secret is the UTF-8 of its text; Stripe's begins with `whsec_` too and is not decoded. A message never
 * repeats the secret. The caller zeroes `bytes` after use.
 * Bound: `INTEROP_LIMITS.secret_bytes_min` to `secret_bytes_max` bytes; a public key has 32.
 */
import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto';
import { RonError } from '@ron/kernel';
import { INTEROP_LIMITS, type SchemeName } from '@ron/proto';
import { decodeBase64 } from './schemes/claim.ts';

export interface SecretBytes {
  readonly kind: 'hmac' | 'ed25519';
  readonly bytes: Uint8Array;
}

const PUBLIC_KEY_BYTES = 32;
/** DER of an Ed25519 public key up to its 32 bytes (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');
const { secret_bytes_min, secret_bytes_max } = INTEROP_LIMITS;

export function parseSecret(scheme: SchemeName, text: string): SecretBytes {
  // `JSON.parse` keeps lone surrogates; UTF-8 would replace them, and two secrets would become one.
  if (!text.isWellFormed()) refuse('the secret is not valid Unicode');
  if (text !== text.trim()) refuse('the secret starts or ends with white space');
  return scheme === 'standard' ? parseStandardSecret(text) : hmac(Buffer.from(text));
}

/** The key for `LiveSecret`. It has memory of its own. */
export function keyOfSecret({ kind, bytes }: SecretBytes): KeyObject {
  if (kind === 'hmac') return createSecretKey(bytes);
  return createPublicKey({ key: Buffer.concat([SPKI_PREFIX, bytes]), format: 'der', type: 'spki' });
}

function parseStandardSecret(text: string): SecretBytes {
  if (text.startsWith('whsk_'))
    refuse('whsk_ is the private key of the sender: enter the public key, which starts with whpk_');
  if (text.startsWith('whpk_')) {
    const bytes = decodeBase64(text.slice('whpk_'.length), PUBLIC_KEY_BYTES);
    if (bytes === undefined) refuse(`the text after whpk_ is not the base64 of ${PUBLIC_KEY_BYTES} bytes`);
    return { kind: 'ed25519', bytes };
  }
  if (!text.startsWith('whsec_')) refuse('a secret of the scheme standard starts with whsec_ or whpk_');
  const bytes = decodeBase64(text.slice('whsec_'.length));
  if (bytes === undefined) refuse('the text after whsec_ is not base64 with padding');
  return hmac(bytes);
}

function hmac(bytes: Uint8Array): SecretBytes {
  if (bytes.length < secret_bytes_min || bytes.length > secret_bytes_max)
    refuse(`the secret has ${bytes.length} bytes; ${secret_bytes_min} to ${secret_bytes_max} are allowed`);
  return { kind: 'hmac', bytes };
}

function refuse(message: string): never {
  throw new RonError('validation', message);
}
