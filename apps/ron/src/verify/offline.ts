/**
 * Verifies a signature with public keys that the verifier holds: without kms and without a network.
 *
 * Contract: the algorithm of a signature is that of the key that verifies it; the file only claims one. The kid is part of
 * the signed text, but a claim too: the result states that the given keys signed.
 *
 * | mode | signatures that must verify |
 * | --- | --- |
 * | `and` (default) | one of each given key, and of each algorithm that the kid claims |
 * | `pq_only` | one of each given ML-DSA key, at least one |
 * | `or` | one of any given key |
 */
import { verify } from 'node:crypto';
import { signedText, splitKid, type VerifyMode } from '@ron/proto';
import type { SigningAlg, VerificationKey } from './public-keys.ts';
import type { SignatureFile } from './signature-file.ts';

export interface OfflineVerdict {
  /** The algorithms whose signature verified. */
  readonly valid: readonly SigningAlg[];
  /** Undefined if the mode is satisfied. */
  readonly reason: string | undefined;
}

const CLAIMED: Readonly<Record<string, readonly string[]>> = { hybrid: ['ed25519', 'ml-dsa-65'] };

export function verifyOffline(
  { kid, payload_b3, sigs }: SignatureFile,
  keys: readonly VerificationKey[],
  mode: VerifyMode = 'and',
): OfflineVerdict {
  const message = Buffer.from(signedText(kid, payload_b3));
  const isValid = ({ alg, key }: VerificationKey): boolean => {
    const sig = sigs.find((each) => each.alg === alg);
    return sig !== undefined && verify(null, message, key, Buffer.from(sig.signature_b64, 'base64'));
  };
  const valid = keys.filter(isValid).map(({ alg }) => alg);
  return { valid, reason: lacking(mode, kid, keys, valid) };
}

function lacking(
  mode: VerifyMode,
  kid: string,
  keys: readonly VerificationKey[],
  valid: readonly SigningAlg[],
): string | undefined {
  if (mode === 'or') return valid.length > 0 ? undefined : 'no signature verifies';
  const given = keys.map(({ alg }) => alg);
  const { alg } = splitKid(kid)!;
  const needed = mode === 'and' ? [...given, ...(CLAIMED[alg] ?? [alg])] : given.filter((each) => each !== 'ed25519');
  if (needed.length === 0) return 'none of the public keys is post-quantum';
  const missing = new Set(needed.filter((each) => !valid.some((ok) => ok === each)));
  if (missing.size === 0) return undefined;
  const unheld = [...missing].filter((each) => !given.some((held) => held === each));
  const hint = unheld.length === 0 ? '' : `; ${kid} claims ${unheld.join(' and ')}, and no such public key was given`;
  return `no valid signature of ${[...missing].join(' and ')}${hint}`;
}
