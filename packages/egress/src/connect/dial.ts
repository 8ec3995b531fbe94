/**
 * Opens one connection: resolves the name, checks every address, connects, checks the peer, starts TLS.
 *
 * Contract: only checked addresses are dialled, and the address of the connected socket is checked again before a byte
 * is sent. Each stage has its own deadline inside `total` (`egress_dns`, `egress_connect`, `egress_tls`). On failure
 * no socket is left open. Plain HTTP goes only to networks that the operator opened, and never to a host with pins.
 * Bound: `addresses_max` addresses of a host, tried one after the other. Cancellation: by `total`.
 *
 *   const dialer = new Dialer({ policy, trust, resolver, limits });
 *   const socket = await dialer.dial(target, total);
 *   dialer.peerOf(socket); // { address, port, spki_sha256 }
 */
import { connect as connectTcp, type Socket, type TcpNetConnectOpts } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { onAbort, RonError, type Deadline } from '@ron/kernel/core';
import type { AddressPolicy } from '../address/address-policy.ts';
import type { Target } from '../address/target.ts';
import type { EgressLimits } from '../limits.ts';
import type { Resolver } from './resolve.ts';
import { tlsError, type Trust } from './trust.ts';

export interface Peer {
  /** The dialled address. */
  readonly address: string;
  readonly port: number;
  /** SHA-256 of the public key of its certificate, in base64; undefined for plain HTTP. */
  readonly spki_sha256: string | undefined;
}

export type Connect = (options: TcpNetConnectOpts) => Socket;

export interface DialerInit {
  readonly policy: AddressPolicy;
  readonly trust: Trust;
  readonly resolver: Resolver;
  readonly limits: EgressLimits;
  /** Default `net.connect`. */
  readonly connect?: Connect;
}

const ATTEMPT_MS = 250;

export class Dialer {
  readonly #init: DialerInit;
  readonly #peers = new WeakMap<object, Peer>();

  constructor(init: DialerInit) {
    this.#init = init;
  }

  /** The peer of a socket that `dial` gave. */
  peerOf(socket: object): Peer | undefined {
    return this.#peers.get(socket);
  }

  /** Whether the peer of a socket that `dial` gave is in a network that the operator opened. */
  isOpened(socket: object): boolean {
    const peer = this.#peers.get(socket);
    return peer !== undefined && this.#init.policy.isOpened(peer.address);
  }

  async dial(target: Target, total: Deadline): Promise<Socket> {
    if (target.scheme === 'http' && this.#init.trust.isPinned(target.hostname))
      throw plainHttpError(`plain HTTP to ${target.hostname} is refused: its key is pinned`);
    const addresses = await this.#addresses(target, total);
    const tcp = await this.#connect(target, addresses, total);
    try {
      const address = tcp.remoteAddress ?? '';
      this.#check(target, [address]);
      const plain = { socket: tcp, pin: undefined };
      const { socket, pin } = target.scheme === 'https' ? await this.#secure(target, tcp, total) : plain;
      this.#peers.set(socket, { address, port: target.port, spki_sha256: pin });
      return socket;
    } catch (error) {
      tcp.destroy();
      throw error;
    }
  }

  /** The addresses of the host that may be dialled: at least one. */
  async #addresses(target: Target, total: Deadline): Promise<readonly string[]> {
    if (target.isLiteral) return this.#check(target, [target.hostname]);
    const { limits, resolver } = this.#init;
    using stage = total.child('egress_dns', limits.dns_ms);
    const found = await resolver.resolve(target.hostname, stage);
    if (found.length === 0) throw new RonError('unreachable', 'the host has no address', { op: 'egress_dns' });
    return this.#check(target, found).slice(0, limits.addresses_max);
  }

  #check(target: Target, addresses: readonly string[]): readonly string[] {
    const { policy } = this.#init;
    const allowed = addresses.filter((address) => policy.refusal(address) === undefined);
    if (allowed.length === 0) {
      const kind = policy.refusal(addresses[0]!);
      const message = `the address of ${target.hostname} is ${kind} and its network is not opened in the configuration`;
      throw new RonError('reject_policy', message, { details: { reason: 'address', kind } });
    }
    if (target.scheme === 'https') return allowed;
    const opened = allowed.filter((address) => policy.isOpened(address));
    if (opened.length > 0) return opened;
    throw plainHttpError(`plain HTTP to ${target.hostname} is refused: its network is not opened in the configuration`);
  }

  async #connect(target: Target, addresses: readonly string[], total: Deadline): Promise<Socket> {
    using stage = total.child('egress_connect', this.#init.limits.connect_ms);
    const socket = (this.#init.connect ?? connectTcp)({
      host: target.hostname,
      port: target.port,
      noDelay: true,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
      // Node calls this for names, never for literals, which were checked above. It gets checked addresses only.
      lookup: (_hostname, _options, done) =>
        done(
          null,
          addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
        ),
    });
    try {
      await stage.run((signal) => untilEvent(socket, 'connect', signal));
      return socket;
    } catch (error) {
      socket.destroy();
      if (error instanceof RonError) throw error;
      throw new RonError('unreachable', `cannot connect to ${target.hostname}`, { op: 'egress_connect', cause: error });
    }
  }

  async #secure(target: Target, tcp: Socket, total: Deadline): Promise<{ socket: TLSSocket; pin: string }> {
    using stage = total.child('egress_tls', this.#init.limits.tls_ms);
    const { trust } = this.#init;
    const socket = connectTls(trust.options(target.hostname, tcp));
    try {
      await stage.run((signal) => untilEvent(socket, 'secureConnect', signal));
      return { socket, pin: trust.verify(target.hostname, socket) };
    } catch (error) {
      socket.destroy();
      throw error instanceof RonError ? error : judgeTls(target.hostname, error);
    }
  }
}

const plainHttpError = (message: string): RonError =>
  new RonError('reject_policy', message, { details: { reason: 'plain_http' } });

const CONNECTION_LOST = new Set(['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'ETIMEDOUT']);

function judgeTls(hostname: string, error: unknown): RonError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (CONNECTION_LOST.has(code))
    return new RonError('unreachable', `${hostname} closed the connection during TLS`, {
      op: 'egress_tls',
      cause: error,
    });
  return tlsError(code, `TLS with ${hostname} failed (${code})`, error);
}

/** Resolves at the event. Rejects at an error, at the end of the socket, or with the signal's reason. */
function untilEvent(socket: Socket, event: 'connect' | 'secureConnect', signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onClose = (): void => reject(Object.assign(new Error('the connection was closed'), { code: 'ECONNRESET' }));
  // The error listener stays: an error without a listener would end the process.
  socket.on('error', reject).once('close', onClose).once(event, resolve);
  const registration = onAbort(signal, reject);
  return promise.finally(() => {
    socket.off('close', onClose).off(event, resolve);
    registration[Symbol.dispose]();
  });
}
