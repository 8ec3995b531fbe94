/** kms as the commands use it, and signatures as files. */
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { KmsClient, ObjectHasher } from '@ron/client';
import type { KeyInfo, Signature } from '@ron/proto';
import { CliError, systemCode } from './exits.ts';
import type { Io } from './io.ts';
import type { Reached, ReachValues } from './reach.ts';
import { withClient } from './service-client.ts';

/** What `ron sign` writes and `ron verify` reads. */
export interface SignatureFile {
  readonly kid: string;
  readonly payload_b3: string;
  readonly sigs: readonly Signature[];
  /** Its place in the audit log. */
  readonly log_index?: number;
}

const SIGNATURE_FILE_BYTES_MAX = 256 * 1024;

export function withKms<T>(
  values: ReachValues,
  io: Io,
  signal: AbortSignal,
  work: (client: KmsClient, reached: Reached) => Promise<T>,
): Promise<T> {
  return withClient('kms', (init) => new KmsClient(init), values, io, signal, work);
}

/** BLAKE3 of a file, in hex: what is signed in its place. */
export async function hashOfFile(path: string, signal: AbortSignal): Promise<string> {
  const hasher = new ObjectHasher();
  try {
    for await (const chunk of createReadStream(path, { signal })) hasher.update(chunk as Uint8Array);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const why = systemCode(error) === 'ENOENT' ? 'there is no such file' : `it cannot be read (${systemCode(error)})`;
    throw new CliError('no_input', `${path}: ${why}`);
  }
  return hasher.finish().slice('b3:'.length);
}

export async function readSignature(path: string): Promise<SignatureFile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new CliError('no_input', `${path}: the signature cannot be read (${systemCode(error)})`);
  }
  try {
    if (text.length > SIGNATURE_FILE_BYTES_MAX) throw new SyntaxError('too long');
    const { kid, payload_b3, sigs } = JSON.parse(text) as SignatureFile;
    if (typeof kid === 'string' && typeof payload_b3 === 'string' && Array.isArray(sigs))
      return { kid, payload_b3, sigs };
  } catch {
    // Said below.
  }
  throw new CliError('data', `${path} is no signature that \`ron sign\` wrote`);
}

/** The key to use when none is named: the only one that signs files. */
export async function onlySigningKey(client: KmsClient): Promise<KeyInfo> {
  const found: KeyInfo[] = [];
  for await (const key of client.keys()) if (signsFiles(key)) found.push(key);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const hint = only === undefined ? '`ron keys create` makes one' : '`ron keys list` shows them';
  throw new CliError('usage', `--key is needed: there are ${found.length} keys that sign; ${hint}`);
}

function signsFiles({ kid, public: { pubkey_b64, parts }, attestation_class, alg }: KeyInfo): boolean {
  const isForBytes = kid.split('/')[1] === 'raw';
  return !isForBytes && alg !== 'x-wing' && attestation_class !== 'imported' && (pubkey_b64 ?? parts) !== undefined;
}
