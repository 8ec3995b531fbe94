/** Access to kms for commands. */
import { KmsClient } from '@ron/client';
import { ADDRESS_PREFIX, isService, type KeyInfo } from '@ron/proto';
import { CliError } from './exits.ts';
import { addressOfFile } from './input-file.ts';
import type { Io } from './io.ts';
import type { ResolvedService, ConnectionValues } from './resolve-service.ts';
import { withClient } from './service-client.ts';

export function withKms<T>(
  values: ConnectionValues,
  io: Pick<Io, 'env'>,
  signal: AbortSignal,
  work: (client: KmsClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  return withClient('kms', (init) => new KmsClient(init), values, io, signal, work);
}

/** The BLAKE3 hash of a file, in hex. Kms signs this hash. */
export async function hashOfFile(path: string, signal: AbortSignal): Promise<string> {
  return (await addressOfFile(path, signal)).slice(ADDRESS_PREFIX.length);
}

/** The default key: the only one that can sign files, besides those of services. */
export async function onlySigningKey(client: KmsClient): Promise<KeyInfo> {
  const found: KeyInfo[] = [];
  for await (const key of client.keys()) if (signsFiles(key)) found.push(key);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const hint = only === undefined ? 'create one with `ron keys create`' : 'list them with `ron keys list`';
  throw new CliError('usage', `--key is required: found ${found.length} signing keys; ${hint}`);
}

function signsFiles({ kid, state, public: { pubkey_b64, parts }, attestation_class, alg }: KeyInfo): boolean {
  const [tenant, purpose] = kid.split('/');
  if (state !== 'enabled' || purpose === 'raw' || isService(tenant)) return false;
  return alg !== 'x-wing' && attestation_class !== 'imported' && (pubkey_b64 ?? parts) !== undefined;
}
