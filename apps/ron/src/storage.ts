/** Access to storage for commands. */
import { StorageAdmin, StorageClient } from '@ron/client';
import { checkAddress, type Address } from '@ron/proto';
import { CliError } from './exits.ts';
import type { Io } from './io.ts';
import type { ResolvedService, ConnectionValues } from './resolve-service.ts';
import { withClient } from './service-client.ts';

export function addressArg(text: string | undefined): Address {
  const result = checkAddress(text);
  if (!result.ok) throw new CliError('usage', `${JSON.stringify(text)} is not a valid address: ${result.problem}`);
  return result.address;
}

export function withStorage<T>(
  values: ConnectionValues,
  io: Pick<Io, 'env'>,
  signal: AbortSignal,
  work: (client: StorageClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  return withClient('storage', (init) => new StorageClient(init), values, io, signal, work);
}

/** The same with the client for administration. */
export function withAdmin<T>(
  values: ConnectionValues,
  io: Io,
  signal: AbortSignal,
  work: (admin: StorageAdmin) => Promise<T>,
): Promise<T> {
  return withClient('storage', (init) => new StorageAdmin(init), values, io, signal, work);
}
