/**
 * Answers probes at the addresses of a service while the service opens its data.
 *
 * Contract: `/healthz` answers 200; a request that the guards refuse gets that refusal; every other request answers 503
 * `not_ready` with `Retry-After`. `ingress.listen(starting)`
 * takes over the listening sockets, so no connection is refused in between; connections that are open then are closed.
 * Only TCP addresses: a Unix socket has no prober before the service listens.
 * Bound: `CONNECTIONS_MAX` connections; each carries one request, whose body is not read and whose headers have the same
 * time as those of the service. Overflow: closed at once.
 * Cancellation: `close` ends it when the start fails.
 */
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RonError } from '@ron/kernel';
import { parseBind, type BindTarget } from './bind.ts';
import { newCorrId } from '../guards/corr-id.ts';
import { RequestGuards } from '../guards/guards.ts';
import { newHeaderView, scanHeaders } from '../guards/header-scan.ts';
import { HostGuard } from '../guards/host-guard.ts';
import { createHttpServer } from './http-server.ts';
import { ingressConfig, type IngressConfig } from '../limits.ts';
import { pathGuard } from '../guards/path-guard.ts';
import { problemFor } from '../answer/problem.ts';
import { listening } from './listen.ts';
import { readTls, type TlsMaterial } from './tls.ts';

const CONNECTIONS_MAX = 64;
const HEALTH_PATH = '/healthz';
const OK = JSON.stringify({ status: 'ok', starting: true });
const OK_HEADERS = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(OK)) };

export class StartingListener implements AsyncDisposable {
  /** By address, as the configuration writes it. */
  readonly #servers = new Map<string, Server>();

  private constructor() {}

  static async open(given: Partial<IngressConfig>): Promise<StartingListener> {
    const config = ingressConfig(given);
    const tls = config.tls === undefined ? undefined : await readTls(config.tls);
    const starting = new StartingListener();
    try {
      await starting.#listen(config.bind, config, tls);
      if (config.metrics_addr !== undefined) await starting.#listen(config.metrics_addr, config, undefined);
      return starting;
    } catch (error) {
      starting.close();
      throw error;
    }
  }

  /** Where it listens, by address as the configuration writes it. */
  portOf(bind: string): number | undefined {
    return (this.#servers.get(bind)?.address() as AddressInfo | undefined)?.port;
  }

  /** The server whose listening socket the listener of `bind` takes over. Its connections are closed. */
  release(bind: string): Server | undefined {
    const server = this.#servers.get(bind);
    this.#servers.delete(bind);
    server?.closeAllConnections();
    return server;
  }

  close(): void {
    for (const server of this.#servers.values()) {
      server.closeAllConnections();
      server.close();
    }
    this.#servers.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #listen(bind: string, config: IngressConfig, tls: TlsMaterial | undefined): Promise<void> {
    const target: BindTarget = parseBind(bind);
    if (target.kind === 'unix') return;
    const guards = new RequestGuards({
      scheme: tls === undefined ? 'http' : 'https',
      header_count_max: config.header_count_max,
      hosts: HostGuard.at(target, config.hosts),
      path: pathGuard(),
      health_paths: new Set([HEALTH_PATH]),
      health_only: false,
      state: { draining: false, notReady: () => 'the service is opening its data' },
    });
    const answer = answerer(guards);
    const server = createHttpServer(config, tls);
    server.on('request', answer);
    // For the whole life of the socket, whatever listeners Node removes: an error without one ends the process.
    server.on('connection', (socket) => socket.on('error', () => undefined));
    server.maxConnections = CONNECTIONS_MAX;
    server.on('checkExpectation', answer);
    // A client that sends no HTTP is not answered.
    server.on('clientError', (_error, socket) => socket.destroy());
    await listening(server, { host: target.host, port: target.port, backlog: config.backlog });
    // A failed accept must not end the process.
    server.on('error', () => undefined);
    this.#servers.set(bind, server);
  }
}

function answerer(guards: RequestGuards): RequestListener {
  const view = newHeaderView();
  const refusalOf = (req: IncomingMessage): RonError | undefined => {
    scanHeaders(req.rawHeaders, view);
    const refused = guards.toOriginForm(req, view) ?? guards.refusal(req, view);
    if (refused !== undefined) return refused;
    const isProbe = req.url === HEALTH_PATH && (req.method === 'GET' || req.method === 'HEAD');
    return isProbe ? undefined : guards.workRefusal();
  };
  return (req, res) => {
    const refusal = refusalOf(req);
    const { status, headers, body } =
      refusal === undefined ? { status: 200, headers: OK_HEADERS, body: OK } : problemFor(refusal, newCorrId());
    res.writeHead(status, { ...headers, connection: 'close' });
    res.end(req.method === 'HEAD' ? undefined : body);
  };
}
