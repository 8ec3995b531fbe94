/**
 * The file that `ron sign` writes and `ron verify` reads.
 *
 * Contract: the file names one key version, and every signature in it names the same. Each algorithm signs once. A file that
 * is truncated or says anything else is refused, so no part of it can be taken for another key.
 * Bound: `FILE_BYTES_MAX`, `SIGNATURES_MAX`.
 */
import { splitKid, type Signature } from '@ron/proto';
import { CliError } from '../exits.ts';
import { readText } from './read-text.ts';

export interface SignatureFile {
  readonly kid: string;
  readonly payload_b3: string;
  readonly sigs: readonly Signature[];
  /** Index of the entry in the audit log. */
  readonly log_index?: number;
}

const FILE_BYTES_MAX = 256 * 1024;
const SIGNATURES_MAX = 8;
const HASH = /^[0-9a-f]{64}$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

export async function readSignature(path: string): Promise<SignatureFile> {
  const text = await readText(path, FILE_BYTES_MAX);
  const problem = `${path} is not a signature file of \`ron sign\``;
  let found: Partial<SignatureFile> | null;
  try {
    found = JSON.parse(text) as Partial<SignatureFile> | null;
  } catch {
    throw new CliError('data', problem);
  }
  const { kid, payload_b3, sigs } = found ?? {};
  if (typeof kid !== 'string' || typeof payload_b3 !== 'string' || !HASH.test(payload_b3) || !Array.isArray(sigs))
    throw new CliError('data', problem);
  if (splitKid(kid)?.version === undefined)
    throw new CliError('data', `${problem}: ${JSON.stringify(kid)} is not the name of a key version`);
  if (sigs.length === 0 || sigs.length > SIGNATURES_MAX || !sigs.every(isSignature))
    throw new CliError('data', problem);
  const other = sigs.find((sig) => sig.kid !== kid);
  if (other !== undefined)
    throw new CliError('data', `${problem}: it names ${kid} and also ${JSON.stringify(other.kid)}`);
  if (new Set(sigs.map(({ alg }) => alg)).size !== sigs.length)
    throw new CliError('data', `${problem}: it has two signatures of one algorithm`);
  return { kid, payload_b3, sigs };
}

function isSignature(value: unknown): value is Signature {
  if (typeof value !== 'object' || value === null) return false;
  const { kid, alg, signature_b64 } = value as Partial<Record<keyof Signature, unknown>>;
  if (typeof kid !== 'string' || typeof alg !== 'string' || typeof signature_b64 !== 'string') return false;
  return signature_b64.length > 0 && BASE64.test(signature_b64);
}
