/**
 * TLS towards servers that are not trusted: which certificates are accepted.
 *
 * Contract: the chain must end at a trusted CA, be valid now, and name the host of the URL, never the dialled address.
 * TLS 1.2 is the minimum. With pins for a host, the public key of its certificate must be one of them as well. A host may
 * be written in any spelling that a URL may have; an entry that is not a host alone is refused, never ignored. There is
 * no option to accept an invalid certificate, and `NODE_TLS_REJECT_UNAUTHORIZED` has no effect.
 * Sessions are not resumed, so the certificate is verified on every connection.
 *
 *   const trust = new Trust({ ca: { pem, mode: 'add' }, pins: { 'tiles.example': ['base64 SHA-256 of the SPKI'] } });
 *   const socket = connect(trust.options('tiles.example', tcp));
 */
import { createHash, X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { isIP } from 'node:net';
import { createSecureContext, getCACertificates, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { RonError } from '@ron/kernel/core';
import { parseHostname } from '../address/target.ts';

export interface ExtraCa {
  /** One or more certificates in PEM. */
  readonly pem: string;
  /** `add`: beside the system's CAs. `only`: instead of them. */
  readonly mode: 'add' | 'only';
}

export interface TrustInit {
  readonly ca?: ExtraCa;
  /** By host, without scheme and port: SHA-256 of the subject public key info, in base64. One match is enough. */
  readonly pins?: Readonly<Record<string, readonly string[]>>;
}

const PIN = /^[A-Za-z0-9+/]{43}=$/;

export class Trust {
  readonly #context;
  readonly #pins: ReadonlyMap<string, readonly string[]>;

  /** Throws `validation` for a CA, a pinned host or a pin that cannot be read. */
  constructor(init: TrustInit) {
    this.#context = contextOf(init.ca);
    this.#pins = pinsOf(init.pins ?? {});
  }

  isPinned(hostname: string): boolean {
    return this.#pins.has(hostname);
  }

  options(hostname: string, socket: Socket): ConnectionOptions {
    return {
      socket,
      secureContext: this.#context,
      // SNI holds names only; for an address the certificate is compared with `host`.
      host: hostname,
      servername: isIP(hostname) === 0 ? hostname : '',
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
    };
  }

  /** Call it once connected: gives the key of the certificate, or throws `bad_gateway` when it is not a pinned one. */
  verify(hostname: string, socket: TLSSocket): string {
    socket.disableRenegotiation();
    const certificate = socket.authorized ? socket.getPeerX509Certificate() : undefined;
    if (certificate === undefined) throw tlsError('certificate_missing', 'the server showed no valid certificate');
    const spki = certificate.publicKey.export({ type: 'spki', format: 'der' });
    const pin = createHash('sha256').update(spki).digest('base64');
    if (this.#pins.get(hostname)?.includes(pin) === false)
      throw tlsError('certificate_pin', 'the key of the certificate is not a pinned one');
    return pin;
  }
}

function pinsOf(pins: Readonly<Record<string, readonly string[]>>): Map<string, readonly string[]> {
  const byHostname = new Map<string, readonly string[]>();
  for (const [host, keys] of Object.entries(pins)) {
    const hostname = parseHostname(host);
    if (hostname === undefined)
      throw new RonError('validation', `pins: ${JSON.stringify(host)} is not a host name such as tiles.example`);
    if (byHostname.has(hostname)) throw new RonError('validation', `pins: ${hostname} is listed twice`);
    if (!keys.every((key) => PIN.test(key)))
      throw new RonError('validation', 'a pin is the SHA-256 of a public key in base64');
    byHostname.set(hostname, keys);
  }
  return byHostname;
}

function contextOf(ca: ExtraCa | undefined): ReturnType<typeof createSecureContext> {
  const minVersion = 'TLSv1.2';
  if (ca === undefined) return createSecureContext({ minVersion });
  const given = certificatesOf(ca.pem);
  return createSecureContext({ minVersion, ca: ca.mode === 'only' ? given : [...getCACertificates(), ...given] });
}

/** Node ignores a CA that it cannot read, so each one is read here. */
function certificatesOf(pem: string): string[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  try {
    if (blocks.length > 0) return blocks.map((block) => new X509Certificate(block).toString());
  } catch {
    // The same answer as for a file without certificates.
  }
  throw new RonError('validation', 'the CA file does not hold certificates in PEM');
}

export function tlsError(reason: string, message: string, cause?: unknown): RonError {
  return new RonError('bad_gateway', message, { op: 'egress_tls', details: { reason }, cause });
}
