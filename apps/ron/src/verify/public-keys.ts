/**
 * Public keys in files: PEM (SubjectPublicKeyInfo) and JWK (`OKP` for Ed25519, RFC 8037; `AKP` for ML-DSA,
 * draft-ietf-cose-dilithium).
 *
 * Contract: a file holds one key or several, of which each has its own algorithm; a hybrid key has two. A private key is
 * refused even though its public part could be computed: it does not belong on a verifier.
 * Bound: `FILE_BYTES_MAX`, `KEYS_MAX`.
 */
import { createPublicKey, type JsonWebKeyInput, type KeyObject } from 'node:crypto';
import type { PublicKey, PublicPart } from '@ron/proto';
import { CliError } from '../exits.ts';
import { readText } from './read-text.ts';

const FILE_BYTES_MAX = 64 * 1024;
const KEYS_MAX = 8;
const PEM = /-----BEGIN ([A-Z0-9 ]+)-----[\s\S]*?-----END \1-----/g;
const ALGS = ['ed25519', 'ml-dsa-44', 'ml-dsa-65', 'ml-dsa-87'] as const;

export type SigningAlg = (typeof ALGS)[number];

export interface VerificationKey {
  /** Of the key itself, not of a label that came with it. */
  readonly alg: SigningAlg;
  readonly key: KeyObject;
}

/** The keys of all files. Throws if two have the same algorithm. */
export async function readPublicKeys(paths: readonly string[]): Promise<VerificationKey[]> {
  const keys: VerificationKey[] = [];
  for (const path of paths) {
    const text = await readText(path, FILE_BYTES_MAX);
    for (const input of text.trimStart().startsWith('{') ? jwksIn(text, path) : pemsIn(text, path)) {
      keys.push(verificationKey(input, path));
    }
  }
  requireDistinct(keys, paths.join(', '));
  return keys;
}

/** The key of a base64 text in DER. */
export function keyFromDer(pubkey_b64: string, about: string): VerificationKey {
  return verificationKey({ key: Buffer.from(pubkey_b64, 'base64'), format: 'der', type: 'spki' }, about);
}

export function requireDistinct(keys: readonly VerificationKey[], about: string): void {
  if (keys.length > KEYS_MAX) throw new CliError('data', `${about}: at most ${KEYS_MAX} keys are allowed`);
  const twice = keys.find(({ alg }, at) => keys.findIndex((key) => key.alg === alg) !== at);
  if (twice !== undefined) throw new CliError('data', `${about}: two keys of ${twice.alg}; name one key version`);
}

type Input = Parameters<typeof createPublicKey>[0];

function verificationKey(input: Input, about: string): VerificationKey {
  let key: KeyObject;
  try {
    key = createPublicKey(input);
  } catch {
    throw new CliError('data', `${about} does not contain a valid public key`);
  }
  const alg = ALGS.find((each) => each === key.asymmetricKeyType);
  if (alg !== undefined) return { alg, key };
  throw new CliError('data', `${about}: ${key.asymmetricKeyType} keys are not supported; use ${ALGS.join(', ')}`);
}

function pemsIn(text: string, path: string): string[] {
  const blocks = [...text.matchAll(PEM)];
  if (blocks.length === 0) throw new CliError('data', `${path} is neither PEM nor JWK`);
  for (const [, label] of blocks) {
    if (label!.includes('PRIVATE')) throw privateKey(path);
    if (label !== 'PUBLIC KEY') throw new CliError('data', `${path} contains ${label}; expected PUBLIC KEY`);
  }
  return blocks.map(([block]) => block);
}

function jwksIn(text: string, path: string): JsonWebKeyInput[] {
  let found: { keys?: unknown };
  try {
    found = JSON.parse(text) as { keys?: unknown };
  } catch {
    throw new CliError('data', `${path} is neither PEM nor JWK`);
  }
  const keys = (Array.isArray(found.keys) ? found.keys : [found]) as JsonWebKeyInput['key'][];
  if (keys.some((key) => key === null || typeof key !== 'object'))
    throw new CliError('data', `${path} is not a JWK or JWK set`);
  if (keys.some((key) => ['d', 'priv', 'k'].some((member) => Object.hasOwn(key, member)))) throw privateKey(path);
  return keys.map((key) => ({ key, format: 'jwk' }));
}

function privateKey(path: string): CliError {
  return new CliError('data', `${path} contains a private key: give the public key only`);
}

/** The parts of a key that has any. */
export function partsOf({ alg, pubkey_b64, parts }: PublicKey): readonly PublicPart[] {
  return parts ?? (pubkey_b64 === undefined ? [] : [{ alg, pubkey_b64 }]);
}

/** One PEM block per part. */
export function toPem(parts: readonly PublicPart[]): string {
  return parts
    .map(({ pubkey_b64 }) => {
      const lines = pubkey_b64.match(/.{1,64}/g)!.join('\n');
      return `-----BEGIN PUBLIC KEY-----\n${lines}\n-----END PUBLIC KEY-----`;
    })
    .join('\n');
}

/** A JWK, or a JWK set of several parts. */
export function toJwk(kid: string, parts: readonly PublicPart[]): object {
  const keys = parts.map(({ pubkey_b64 }) => {
    const { alg, key } = keyFromDer(pubkey_b64, kid);
    const jwk = key.export({ format: 'jwk' });
    return { ...jwk, alg: alg === 'ed25519' ? 'Ed25519' : alg.toUpperCase(), use: 'sig', kid };
  });
  return keys.length === 1 ? keys[0]! : { keys };
}
