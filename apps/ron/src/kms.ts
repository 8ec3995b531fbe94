/** Access to kms for commands, and signature files. */
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { KmsClient, ObjectHasher } from '@ron/client';
import type { KeyInfo, Signature } from '@ron/proto';
import { CliError, systemCode } from './exits.ts';
import type { Io } from './io.ts';
import type { ResolvedService, ConnectionValues } from './resolve-service.ts';
import { withClient } from './service-client.ts';

/** The file that `ron sign` writes and `ron verify` reads. */
export interface SignatureFile {
  readonly kid: string;
  readonly payload_b3: string;
  readonly sigs: readonly Signature[];
  /** Index of the entry in the audit log. */
  readonly log_index?: number;
}

const SIGNATURE_FILE_BYTES_MAX = 256 * 1024;

export function withKms<T>(
  values: ConnectionValues,
  io: Io,
  signal: AbortSignal,
  work: (client: KmsClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  return withClient('kms', (init) => new KmsClient(init), values, io, signal, work);
}

/** The BLAKE3 hash of a file, in hex. Kms signs this hash. */
export async function hashOfFile(path: string, signal: AbortSignal): Promise<string> {
  const hasher = new ObjectHasher();
  try {
    for await (const chunk of createReadStream(path, { signal })) hasher.update(chunk as Uint8Array);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const why = systemCode(error) === 'ENOENT' ? 'no such file' : `cannot be read (${systemCode(error)})`;
    throw new CliError('no_input', `${path}: ${why}`);
  }
  return hasher.finish().slice('b3:'.length);
}

export async function readSignature(path: string): Promise<SignatureFile> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw new CliError('no_input', `cannot read the signature ${path} (${systemCode(error)})`);
  }
  try {
    if (text.length > SIGNATURE_FILE_BYTES_MAX) throw new SyntaxError('too long');
    const { kid, payload_b3, sigs } = JSON.parse(text) as SignatureFile;
    if (typeof kid === 'string' && typeof payload_b3 === 'string' && Array.isArray(sigs))
      return { kid, payload_b3, sigs };
  } catch {
    // Reported below.
  }
  throw new CliError('data', `${path} is not a signature file of \`ron sign\``);
}

/** The default key: the only one that can sign files. */
export async function onlySigningKey(client: KmsClient): Promise<KeyInfo> {
  const found: KeyInfo[] = [];
  for await (const key of client.keys()) if (signsFiles(key)) found.push(key);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const hint = only === undefined ? 'create one with `ron keys create`' : 'list them with `ron keys list`';
  throw new CliError('usage', `--key is required: found ${found.length} signing keys; ${hint}`);
}

function signsFiles({ kid, public: { pubkey_b64, parts }, attestation_class, alg }: KeyInfo): boolean {
  const isForBytes = kid.split('/')[1] === 'raw';
  return !isForBytes && alg !== 'x-wing' && attestation_class !== 'imported' && (pubkey_b64 ?? parts) !== undefined;
}
