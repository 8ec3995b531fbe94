/**
 * Multiaddrs as bytes: the addresses of a peer, and that of its storage (`/ip4/1.2.3.4/tcp/7101/http`).
 *
 * Contract: only literal IPs are used. A name would let a peer choose which host other nodes resolve and call.
 * Bytes of other kinds are ignored, never an error.
 */
import { isIP } from 'node:net';

const IP4 = 0x04;
const IP6 = 0x29;
const TCP = 0x06;
/** `/http` (480) and `/p2p` (421) as varints. */
const HTTP = [0xe0, 0x03] as const;
const P2P = [0xa5, 0x03] as const;

export interface Endpoint {
  /** The bytes of the IP in hex, to compare. */
  readonly ip: string;
  /** As in a URL: brackets around IPv6. */
  readonly host: string;
  readonly port: number;
  /** `http`: the storage of the peer; `p2p`: the peer itself. */
  readonly kind: 'http' | 'p2p';
}

/** Undefined unless the address is `/ip4|ip6/../tcp/..[/http][/p2p/..]`. */
export function endpointOf(bytes: Uint8Array): Endpoint | undefined {
  const length = bytes[0] === IP4 ? 4 : bytes[0] === IP6 ? 16 : undefined;
  if (length === undefined || bytes.length < length + 4 || bytes[length + 1] !== TCP) return undefined;
  const ip = Buffer.from(bytes.subarray(1, length + 1));
  const port = bytes[length + 2]! * 256 + bytes[length + 3]!;
  const rest = bytes.subarray(length + 4);
  const isHttp = rest[0] === HTTP[0] && rest[1] === HTTP[1];
  const peer = isHttp ? rest.subarray(HTTP.length) : rest;
  if (port === 0 || (peer.length > 0 && (peer[0] !== P2P[0] || peer[1] !== P2P[1]))) return undefined;
  return { ip: ip.toString('hex'), host: hostOf(ip), port, kind: isHttp ? 'http' : 'p2p' };
}

function hostOf(ip: Buffer): string {
  if (ip.length === 4) return ip.join('.');
  const groups = Array.from({ length: 8 }, (_, i) => ip.readUInt16BE(2 * i).toString(16));
  return new URL(`http://[${groups.join(':')}]`).hostname;
}

/** The text of the address without `/p2p/..`. */
export function endpointText({ host, port, kind }: Endpoint): string {
  const ip = host.startsWith('[') ? `/ip6/${host.slice(1, -1)}` : `/ip4/${host}`;
  return `${ip}/tcp/${port}${kind === 'http' ? '/http' : ''}`;
}

export const endpointUrl = ({ host, port }: Endpoint): string => `http://${host}:${port}`;

/** The multiaddr that announces a storage URL. Undefined unless the URL is `http` with a literal IP and without a path. */
export function storageAddr(url: string): string | undefined {
  const parsed = URL.parse(url);
  if (parsed === null || parsed.protocol !== 'http:' || parsed.pathname !== '/') return undefined;
  if (parsed.search !== '' || parsed.hash !== '' || parsed.username !== '' || parsed.password !== '') return undefined;
  const ip = parsed.hostname.replaceAll(/^\[|\]$/g, '');
  if (isIP(ip) === 0) return undefined;
  return `/${isIP(ip) === 4 ? 'ip4' : 'ip6'}/${ip}/tcp/${parsed.port === '' ? 80 : parsed.port}/http`;
}
