/** A service as the commands use it: found, opened, and with its refusals explained. */
import { TRANSPORT_DEFAULTS, type TransportInit } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError } from '@ron/kernel/core';
import type { Service } from '@ron/proto';
import { CliError } from './exits.ts';
import type { Io } from './io.ts';
import { resolveService, type ResolvedService, type ConnectionValues } from './resolve-service.ts';

/** Runs `work` with a client, and says what to do when the service does not answer or does not allow it. */
export async function withClient<C, T>(
  service: Service,
  open: (init: TransportInit) => C,
  values: ConnectionValues,
  io: Io,
  signal: AbortSignal,
  work: (client: C, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  const resolved = await resolveService(service, values, io);
  const { url, capability, supervised } = resolved;
  // One that crashed is being started again at this moment: that is worth a few seconds.
  const { policy, resume_policy } = TRANSPORT_DEFAULTS;
  try {
    const init = { url, capability, signal, policy: supervised ? resume_policy : policy, fetch: nodeFetch() };
    return await work(open(init), resolved);
  } catch (error) {
    throw explained(error, service, resolved);
  }
}

/** What to do about an error of a service, where that is known. */
export function explained(error: unknown, service: Service, resolved: ResolvedService): unknown {
  const { url, capability, capability_file, isWithheld } = resolved;
  if (isRonError(error, 'unreachable') && error.details?.['system_code'] === 'ECONNREFUSED') {
    return new CliError('unavailable', `${service} is not running at ${url}: start it with \`npm start\``, error.code);
  }
  if (isRonError(error, 'unauthorized') && isWithheld) {
    const message = `this needs a capability; the one in ${capability_file} goes to the services of its own node only, and ${url} is none of them now: to send one there, name it with --capability-file`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'unauthorized') && capability === undefined) {
    const message = `this needs a capability, and there is none at ${capability_file}: \`ron up\` makes one, or name one with --capability-file`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'unauthorized')) {
    const message = `${service} at ${url} does not accept the capability in ${capability_file}: ${error.message}`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'not_ready') || isRonError(error, 'audit_integrity')) {
    return new CliError('unavailable', `${service} is not ready: ${error.message}`, error.code);
  }
  return error;
}
