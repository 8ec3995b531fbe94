/**
 * Clients of services for commands: connects, and adds advice to errors.
 *
 * Contract: a success of kms or passport is believed only if a capability was sent, which happens at the socket of the own
 * node, another named socket or a pinned key only. Without one, another process may answer at the address.
 */
import { TRANSPORT_DEFAULTS, type Fetch, type TransportInit } from '@ron/client';
import { reach, reachPrivately, type NodeFetch, type Reach } from '@ron/client/node';
import { narrowed } from '@ron/auth/narrowed';
import { isRonError, RonError } from '@ron/kernel/core';
import type { Service } from '@ron/proto';
import { CliError } from './exits.ts';
import type { Io } from './io.ts';
import { resolveService, type ResolvedService, type ConnectionValues } from './resolve-service.ts';

/** No process listens at the address, or the socket does not exist. */
const STOPPED = new Set(['ECONNREFUSED', 'ENOENT']);

/** Runs `work` with a client. Errors of the service are rethrown with advice for the user. */
export async function withClient<C, T>(
  service: Service,
  open: (init: TransportInit) => C,
  values: ConnectionValues,
  io: Pick<Io, 'env'>,
  signal: AbortSignal,
  work: (client: C, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  const resolved = await resolveService(service, values, io);
  const { supervised } = resolved;
  // `ron up` restarts a crashed service within seconds: retry for that long.
  const { policy, resume_policy } = TRANSPORT_DEFAULTS;
  try {
    const connection = connectionOf(service, resolved);
    const init = { signal, policy: supervised ? resume_policy : policy, ...connection };
    const isBelieved = service === 'storage' || connection.authorize !== undefined;
    return await work(open(isBelieved ? init : { ...init, fetch: disbelieving(service, init) }), resolved);
  } catch (error) {
    throw explained(error, service, resolved);
  }
}

function disbelieving(
  service: Service,
  { fetch = globalThis.fetch, url, shown_url = String(url) }: TransportInit,
): Fetch {
  return async (place, init) => {
    const answer = await fetch(place, init);
    if (answer.status >= 400) return answer;
    await answer.body?.cancel();
    throw new RonError(
      'forbidden',
      `${shown_url} answered without a capability: it is not ${service}, and its answer is ignored`,
    );
  };
}

/** How to connect to a service, and to authorize each request. A sent token is valid for one request only. */
function connectionOf(
  service: Service,
  { url, pin, capability }: ResolvedService,
): Reach & Pick<TransportInit, 'authorize'> {
  if (capability === undefined) return reach(url, pin);
  const authorize: TransportInit['authorize'] = ({ body }) => narrowed(capability, { audience: service, body });
  return { ...reachPrivately(url, pin), authorize };
}

/** Sends a GET to a service with its capability. Redirects are refused. */
export function senderOf(
  service: Service,
  resolved: ResolvedService,
): { readonly url: string; readonly send: (url: string, signal: AbortSignal) => ReturnType<NodeFetch> } {
  const { url: base, fetch, authorize } = connectionOf(service, resolved);
  const send = (url: string, signal: AbortSignal): ReturnType<NodeFetch> => {
    const token = authorize?.({ body: new Uint8Array(0) });
    const headers = { ...(token !== undefined && { Authorization: `Bearer ${token}` }) };
    return fetch(new URL(url), {
      method: 'GET',
      headers,
      signal,
      redirect: 'error',
      cache: 'no-store',
      credentials: 'omit',
    });
  };
  return { url: base, send };
}

/** The error with advice for the user, where there is any. */
export function explained(error: unknown, service: Service, resolved: ResolvedService): unknown {
  const { url, capability, capability_file, isWithheld } = resolved;
  if (isRonError(error, 'unreachable') && STOPPED.has(String(error.details?.['system_code']))) {
    const dir = /^unix:(.*)\/run\/[^/]+$/.exec(url)?.[1];
    const start = dir === undefined ? 'ron up' : `ron up --dir ${dir}`;
    return new CliError('unavailable', `${service} is not running at ${url}: start it with \`${start}\``, error.code);
  }
  if (isRonError(error, 'unauthorized') && isWithheld) {
    const message = `this needs a capability; the one in ${capability_file} is sent only to services of its own node, and ${url} is not one of them: to send one there, name it with --capability-file, and the service with --url unix:PATH, or https:// and --pin`;
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
