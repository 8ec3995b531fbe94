/** Clients of services for commands: connects, and adds advice to errors. */
import { TRANSPORT_DEFAULTS, type TransportInit } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError } from '@ron/kernel/core';
import type { Service } from '@ron/proto';
import { CliError } from './exits.ts';
import type { Io } from './io.ts';
import { resolveService, type ResolvedService, type ConnectionValues } from './resolve-service.ts';

/** Runs `work` with a client. Errors of the service are rethrown with advice for the user. */
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
  // `ron up` restarts a crashed service within seconds: retry for that long.
  const { policy, resume_policy } = TRANSPORT_DEFAULTS;
  try {
    const init = { url, capability, signal, policy: supervised ? resume_policy : policy, fetch: nodeFetch() };
    return await work(open(init), resolved);
  } catch (error) {
    throw explained(error, service, resolved);
  }
}

/** The error with advice for the user, where there is any. */
export function explained(error: unknown, service: Service, resolved: ResolvedService): unknown {
  const { url, capability, capability_file, isWithheld } = resolved;
  if (isRonError(error, 'unreachable') && error.details?.['system_code'] === 'ECONNREFUSED') {
    return new CliError('unavailable', `${service} is not running at ${url}: start it with \`npm start\``, error.code);
  }
  if (isRonError(error, 'unauthorized') && isWithheld) {
    const message = `this needs a capability; the one in ${capability_file} is sent only to services of its own node, and ${url} is not one of them: to send one there, name it with --capability-file`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'unauthorized') && capability === undefined) {
    const message = `this needs a capability, and ${capability_file} does not exist: \`ron up\` creates it, or name another with --capability-file`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'unauthorized')) {
    const message = `${service} at ${url} refused the capability in ${capability_file}: ${error.message}`;
    return new CliError('permission', message, error.code);
  }
  if (isRonError(error, 'not_ready') || isRonError(error, 'audit_integrity')) {
    return new CliError('unavailable', `${service} is not ready: ${error.message}`, error.code);
  }
  return error;
}
