/**
 * The keys that a verifier trusts, one per line, like `allowed_signers` of ssh:
 *
 *     # comment
 *     acme/docs/                           all keys of tenant acme with purpose docs; kms verifies
 *     acme/docs/ed25519/<uuid>             one key, any version; kms verifies
 *     acme/docs/ed25519/<uuid>#v2 MCow...  one version, with its public key: verified without kms
 *     acme/docs/hybrid/<uuid>#v1 MCow... MIIH...  a hybrid key has two
 *
 * Contract: a signature is trusted if one line accepts it: the line matches its kid, and the public keys of the line verify
 * it, or kms does if the line has none. A prefix ends with `/`. A file that another user than root owns or can write
 * is refused.
 * Bound: `FILE_BYTES_MAX`.
 */
import { stat } from 'node:fs/promises';
import { splitKid } from '@ron/proto';
import { CliError, systemCode } from '../exits.ts';
import { keyFromDer, requireDistinct, type VerificationKey } from './public-keys.ts';
import { readText } from './read-text.ts';

const FILE_BYTES_MAX = 1024 * 1024;
const WRITABLE_BY_OTHERS = 0o022;
const PREFIX = /^[A-Za-z0-9][A-Za-z0-9._-]*\/(?:[a-z0-9][a-z0-9._-]*\/(?:[a-z0-9-]+\/)?)?$/;

export interface TrustLine {
  readonly pattern: string;
  /** Empty: kms verifies. */
  readonly keys: readonly VerificationKey[];
}

/** Undefined if the file does not exist and is the default one. */
export async function readTrust(path: string, isDefault: boolean): Promise<readonly TrustLine[] | undefined> {
  let found;
  try {
    found = await stat(path);
  } catch (error) {
    if (isDefault && systemCode(error) === 'ENOENT') return undefined;
    throw new CliError('no_input', `cannot read ${path} (${systemCode(error) ?? 'unknown'})`);
  }
  if ((found.mode & WRITABLE_BY_OTHERS) !== 0)
    throw new CliError('permission', `${path} can be written by other users: run chmod go-w ${path}`);
  if (found.uid !== 0 && found.uid !== process.geteuid?.())
    throw new CliError('permission', `${path} belongs to another user: its owner decides whom you trust`);
  const lines = (await readText(path, FILE_BYTES_MAX)).split('\n');
  return lines.flatMap((line, at) => parseLine(line, `${path}:${at + 1}`));
}

function parseLine(line: string, about: string): TrustLine[] {
  const [pattern, ...encoded] = line.trim().split(/\s+/);
  // A kid contains #, so only a whole line is a comment.
  if (pattern === undefined || pattern === '' || pattern.startsWith('#')) return [];
  if (!PREFIX.test(pattern) && splitKid(pattern) === undefined)
    throw new CliError('data', `${about}: expected a kid, or a prefix that ends with /`);
  const keys = encoded.map((each) => keyFromDer(each, about));
  requireDistinct(keys, about);
  return [{ pattern, keys }];
}

/** The public keys of each line that covers the kid and has any: those of one line are enough. */
export const keysOfLines = (lines: readonly TrustLine[], kid: string): readonly (readonly VerificationKey[])[] =>
  lines.filter(({ pattern, keys }) => keys.length > 0 && covers(pattern, kid)).map(({ keys }) => keys);

/** Whether a pattern covers the kid of a version. */
export function covers(pattern: string, kid: string): boolean {
  if (pattern.endsWith('/')) return kid.startsWith(pattern);
  return kid === pattern || kid.startsWith(`${pattern}#`);
}
