/**
 * Answers probes at the addresses of a service while the service opens its data.
 *
 * Contract: `/healthz` answers 200; a request that the checks refuse gets that refusal; every other request gets 503
 * `not_ready` with `Retry-After`. `ingress.listen(starting)` takes over the listening sockets, so no connection is
 * refused in between; open connections are closed. TCP addresses only: a Unix socket appears when the service takes
 * requests, so its callers fail fast and retry.
 * Bound: `CONNECTIONS_MAX` connections with one request each, whose body is not read. The header timeout is that of the
 * service.
 * Overflow: closed at once.
 * Cancellation: `close` ends it when the start fails.
 */
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RonError } from '@ron/kernel';
import { mainTarget, parseBind, type BindTarget } from './bind.ts';
import { newCorrId } from '../guards/corr-id.ts';
import { RequestChecks } from '../guards/request-checks.ts';
import { newHeaderView, scanHeaders } from '../guards/header-scan.ts';
import { HostGuard } from '../guards/host-guard.ts';
import { createHttpServer } from './http-server.ts';
import { ingressConfig, type IngressConfig } from '../limits.ts';
import { pathGuard } from '../guards/path-guard.ts';
import { problemFor } from '../answer/problem.ts';
import { listening, tcpOptions } from './listen.ts';
import { readTls, type TlsMaterial } from './tls.ts';

const CONNECTIONS_MAX = 64;
const HEALTH_PATH = '/healthz';
const OK = JSON.stringify({ status: 'ok', starting: true });
const OK_HEADERS = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(OK)) };

/** The key of the configuration that has the address. Two keys may have the same text: `127.0.0.1:0`. */
export type ListenerRole = 'bind' | 'metrics_addr';

export class StartingListener implements AsyncDisposable {
  readonly #servers = new Map<ListenerRole, Server>();
  /** The reason in the answers; the service may state its progress. */
  reason = 'the service is opening its data';

  private constructor() {}

  static async open(given: Partial<IngressConfig>): Promise<StartingListener> {
    const config = ingressConfig(given);
    const tls = config.tls === undefined ? undefined : await readTls(config.tls);
    const starting = new StartingListener();
    try {
      await starting.#listen('bind', mainTarget(config), config, tls);
      if (config.metrics_addr !== undefined)
        await starting.#listen('metrics_addr', parseBind(config.metrics_addr), config, undefined);
      return starting;
    } catch (error) {
      starting.close();
      throw error;
    }
  }

  portOf(role: ListenerRole): number | undefined {
    return (this.#servers.get(role)?.address() as AddressInfo | undefined)?.port;
  }

  /** The server whose listening socket the listener takes over. Its connections are closed. */
  release(role: ListenerRole): Server | undefined {
    const server = this.#servers.get(role);
    this.#servers.delete(role);
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

  async #listen(
    role: ListenerRole,
    target: BindTarget,
    config: IngressConfig,
    tls: TlsMaterial | undefined,
  ): Promise<void> {
    if (target.kind === 'unix') return;
    const checks = new RequestChecks({
      scheme: tls === undefined ? 'http' : 'https',
      header_count_max: config.header_count_max,
      hosts: HostGuard.at(target, config.hosts),
      path: pathGuard(),
      health_paths: new Set([HEALTH_PATH]),
      health_only: false,
      state: { draining: false, notReady: () => this.reason },
    });
    const answer = answerer(checks);
    const server = createHttpServer(config, tls);
    server.on('request', answer);
    // For the lifetime of the socket, whichever listeners Node removes: an error without a listener ends the process.
    server.on('connection', (socket) => socket.on('error', () => undefined));
    server.maxConnections = CONNECTIONS_MAX;
    server.on('checkExpectation', answer);
    // A client that does not send HTTP is not answered.
    server.on('clientError', (_error, socket) => socket.destroy());
    await listening(server, tcpOptions(target, config.backlog));
    // A failed accept must not end the process.
    server.on('error', () => undefined);
    this.#servers.set(role, server);
  }
}

function answerer(checks: RequestChecks): RequestListener {
  const view = newHeaderView();
  const refusalOf = (req: IncomingMessage): RonError | undefined => {
    scanHeaders(req.rawHeaders, view);
    const refused = checks.toOriginForm(req, view) ?? checks.refusal(req, view);
    if (refused !== undefined) return refused;
    const isProbe = req.url === HEALTH_PATH && (req.method === 'GET' || req.method === 'HEAD');
    return isProbe ? undefined : checks.workRefusal();
  };
  return (req, res) => {
    const refusal = refusalOf(req);
    const { status, headers, body } =
      refusal === undefined ? { status: 200, headers: OK_HEADERS, body: OK } : problemFor(refusal, newCorrId());
    res.writeHead(status, { ...headers, connection: 'close' });
    res.end(req.method === 'HEAD' ? undefined : body);
  };
}
