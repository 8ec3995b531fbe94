/**
 * Parses bind addresses, and refuses to expose open reads beyond loopback by accident.
 *
 * Contract: an address is parsed completely, or refused with a message that states the expected form. A service with
 * open reads is not reachable from other machines unless the configuration allows it.
 */
import { isIPv6 } from 'node:net';
import { RonError } from '@ron/kernel';
import { SOCKET_PATH_BYTES_MAX } from '@ron/proto';
import { isLoopback } from '../guards/host-guard.ts';
import type { IngressConfig } from '../limits.ts';

export type BindTarget =
  | {
      readonly kind: 'tcp';
      readonly host: string;
      readonly port: number;
      readonly loopback: boolean;
      /** An inherited socket that is bound to this address. */
      readonly fd?: number;
    }
  | { readonly kind: 'unix'; readonly path: string };

export function parseBind(text: string): BindTarget {
  if (text.startsWith('unix:')) {
    const path = text.slice(5);
    if (path === '' || Buffer.byteLength(path) > SOCKET_PATH_BYTES_MAX) throw badBind(text);
    return { kind: 'unix', path };
  }
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || port > 65_535 || (match![1] !== undefined && !isIPv6(host))) throw badBind(text);
  return { kind: 'tcp', host, port, loopback: isLoopback(host) };
}

/** The target of the main listener: `bind`, by its inherited socket if there is one. */
export function mainTarget({ bind, listen_fd }: Pick<IngressConfig, 'bind' | 'listen_fd'>): BindTarget {
  const target = parseBind(bind);
  return target.kind === 'tcp' && listen_fd !== undefined ? { ...target, fd: listen_fd } : target;
}

/** Throws when open reads would be served to other machines and the configuration does not allow it. */
export function guardOpenReads(
  target: BindTarget,
  open_routes: readonly string[],
  open_beyond_loopback: boolean,
): void {
  if (target.kind === 'unix' || target.loopback || open_beyond_loopback || open_routes.length === 0) return;
  throw new RonError(
    'internal',
    `refusing to bind ${target.host}: ${open_routes.join(', ')} can be read without a capability. ` +
      'Bind 127.0.0.1, require capabilities for reads, or set open_beyond_loopback = true.',
  );
}

/** The address in URL form. */
export function urlOf(host: string, port: number, tls: boolean): string {
  return `${tls ? 'https' : 'http'}://${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

function badBind(text: string): RonError {
  return new RonError(
    'internal',
    `cannot bind ${JSON.stringify(text)}: expected host:port, [v6]:port or unix:/path of at most ${SOCKET_PATH_BYTES_MAX} bytes`,
  );
}
