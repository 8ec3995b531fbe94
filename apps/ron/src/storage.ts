/** Storage as the commands use it: found, opened, and with its refusals explained. */
import { StorageClient, TRANSPORT_DEFAULTS } from '@ron/client';
import { isRonError } from '@ron/kernel/core';
import { checkAddress, type Address } from '@ron/proto';
import type { REACH_OPTIONS, Values } from './command.ts';
import { CliError } from './exits.ts';
import { reach, type Reached } from './home.ts';
import type { Io } from './io.ts';

export function addressArg(text: string | undefined): Address {
  const result = checkAddress(text);
  if (!result.ok) throw new CliError('usage', `${JSON.stringify(text)} is no address: ${result.problem}`);
  return result.address;
}

/** Runs `work` with a client, and says what to do when storage does not answer or does not allow it. */
export async function withStorage<T>(
  values: Values<typeof REACH_OPTIONS>,
  io: Io,
  signal: AbortSignal,
  work: (client: StorageClient, reached: Reached) => Promise<T>,
): Promise<T> {
  const reached = await reach('storage', values, io);
  const { url, capability, supervised } = reached;
  // One that crashed is being started again at this moment: that is worth a few seconds.
  const { policy, resume_policy } = TRANSPORT_DEFAULTS;
  try {
    const client = new StorageClient({ url, capability, signal, policy: supervised ? resume_policy : policy });
    return await work(client, reached);
  } catch (error) {
    throw explained(error, reached);
  }
}

function explained(error: unknown, { url, capability, capability_file }: Reached): unknown {
  if (isRonError(error, 'unreachable') && error.details?.['system_code'] === 'ECONNREFUSED') {
    return new CliError('unavailable', `storage is not running at ${url}: start it with \`npm start\``, error.code);
  }
  if (isRonError(error, 'unauthorized') && capability === undefined) {
    const message = `this needs a capability, and there is none at ${capability_file}: \`ron up\` makes one, or name one with --capability-file`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'unauthorized')) {
    const message = `storage at ${url} does not accept the capability in ${capability_file}: ${error.message}`;
    return new CliError('permission', message, error.code);
  }
  return error;
}
