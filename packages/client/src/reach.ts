/**
 * The ways to a service that no other user of the machine or of the network can impersonate.
 *
 *     new KmsClient({ ...reachPrivately('unix:/srv/ron/run/kms.sock'), capability });
 *     new KmsClient({ ...reachPrivately('https://kms.example:7105', pin), capability });
 *
 * Contract: `unix:PATH` connects to a socket, whose directory decides who may listen there. `https://` with a pin connects
 * to the holder of one private key: the key is compared before a byte of a request is sent, and it replaces the
 * certificate authorities and the host name. `reachPrivately` refuses every other URL: any user may bind a free TCP port
 * and receive the capabilities of its callers. `reach` accepts `http://` too, for calls without a capability.
 */
import { createHash } from 'node:crypto';
import type { Agent } from 'node:https';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { RonError } from '@ron/kernel/core';
import { nodeFetch, type NodeFetch } from './node-fetch.ts';

/** The part of a `TransportInit` that decides where requests go. */
export interface Reach {
  readonly url: string;
  readonly shown_url: string;
  readonly fetch: NodeFetch;
}

const UNIX = 'unix:';
/** For the connection and the handshake; the deadline of the request may be shorter. */
const CONNECT_MS = 10_000;
/** The Host that a service accepts at its Unix socket. */
const LOCAL_URL = 'http://localhost';

export function isPrivate(url: string, pin: string | undefined): boolean {
  return url.startsWith(`${UNIX}/`) || (pin !== undefined && /^https:/i.test(url));
}

/** Throws `validation` for a URL at which another user could listen. */
export function reachPrivately(url: string, pin?: string): Reach {
  if (isPrivate(url, pin)) return reach(url, pin);
  throw new RonError(
    'validation',
    `refusing to send a capability to ${url}: use unix:PATH, or https:// and the pin of its public key`,
  );
}

export function reach(url: string, pin?: string): Reach {
  if (url.startsWith(UNIX)) {
    return { url: LOCAL_URL, shown_url: url, fetch: nodeFetch({ socketPath: url.slice(UNIX.length) }) };
  }
  const tls = pin === undefined ? undefined : pinnedAgent(pinBytes(pin));
  return { url, shown_url: url, fetch: nodeFetch({ tls }) };
}

/** SHA-256 of a public key (SPKI, DER), in base64 or hex. */
export const PIN_PATTERN = /^(?:[A-Za-z0-9+/]{43}=|[0-9a-f]{64})$/;

function pinBytes(pin: string): Buffer {
  if (!PIN_PATTERN.test(pin)) throw new RonError('validation', 'a pin is the SHA-256 of a public key in base64 or hex');
  return Buffer.from(pin, pin.length === 64 ? 'hex' : 'base64');
}

/** An agent that compares the key of the server before the request gets the socket. */
function pinnedAgent(pin: Buffer): Agent {
  const agent = new (process.getBuiltinModule('node:https').Agent)({ keepAlive: true });
  const createConnection = (options: ConnectInit, onCreated: (error: Error | null, socket?: Duplex) => void): void => {
    const { host = 'localhost', port = 443, servername = '' } = options;
    const socket = process.getBuiltinModule('node:tls').connect({
      host,
      port: Number(port),
      servername,
      minVersion: 'TLSv1.2',
      ALPNProtocols: ['http/1.1'],
      // The pin decides. The handshake still proves that the server holds the private key.
      rejectUnauthorized: false,
    });
    socket.once('error', onCreated);
    socket.setTimeout(CONNECT_MS, () => socket.destroy(new Error('the TLS handshake took too long')));
    socket.once('secureConnect', () => {
      socket.off('error', onCreated);
      socket.setTimeout(0);
      if (keyHash(socket)?.equals(pin) === true) return onCreated(null, socket);
      socket.on('error', () => undefined);
      socket.destroy();
      onCreated(pinMismatch(host));
    });
  };
  return Object.assign(agent, { createConnection });
}

interface ConnectInit {
  readonly host?: string;
  readonly port?: number | string;
  readonly servername?: string;
}

function keyHash(socket: TLSSocket): Buffer | undefined {
  const spki = socket.getPeerX509Certificate()?.publicKey.export({ type: 'spki', format: 'der' });
  return spki && createHash('sha256').update(spki).digest();
}

function pinMismatch(host: string): RonError {
  return new RonError('integrity', `the public key of ${host} is not the pinned one: nothing was sent`);
}
