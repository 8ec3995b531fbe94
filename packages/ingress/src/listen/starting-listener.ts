/**
 * Answers probes at the addresses of a service while the service opens its data.
 *
 * Contract: `/healthz` answers 200; a request that the checks refuse gets that refusal; every other request gets 503
 * `not_ready` with `Retry-After`. `ingress.listen(starting)` takes over the listening sockets, so no connection is
 * refused in between; open connections are closed. TCP addresses only: a Unix socket is not probed before the service
 * listens.
 * Bound: `CONNECTIONS_MAX` connections with one request each, whose body is not read. The header timeout is that of the
 * service.
 * Overflow: closed at once.
 * Cancellation: `close` ends it when the start fails.
 */
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RonError } from '@ron/kernel';
import { parseBind, type BindTarget } from './bind.ts';
import { newCorrId } from '../guards/corr-id.ts';
import { RequestChecks } from '../guards/request-checks.ts';
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
  /** With their addresses as written in the configuration. Two may have the same address if its port is 0. */
  #servers: { readonly bind: string; readonly server: Server }[] = [];

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

  /** The port of an address, as written in the configuration. */
  portOf(bind: string): number | undefined {
    const found = this.#servers.find((each) => each.bind === bind);
    return (found?.server.address() as AddressInfo | undefined)?.port;
  }

  /** The server whose listening socket the listener of `bind` takes over. Its connections are closed. */
  release(bind: string): Server | undefined {
    const found = this.#servers.findLast((each) => each.bind === bind);
    this.#servers = this.#servers.filter((each) => each !== found);
    found?.server.closeAllConnections();
    return found?.server;
  }

  close(): void {
    for (const { server } of this.#servers) {
      server.closeAllConnections();
      server.close();
    }
    this.#servers = [];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #listen(bind: string, config: IngressConfig, tls: TlsMaterial | undefined): Promise<void> {
    const target: BindTarget = parseBind(bind);
    if (target.kind === 'unix') return;
    const checks = new RequestChecks({
      scheme: tls === undefined ? 'http' : 'https',
      header_count_max: config.header_count_max,
      hosts: HostGuard.at(target, config.hosts),
      path: pathGuard(),
      health_paths: new Set([HEALTH_PATH]),
      health_only: false,
      state: { draining: false, notReady: () => 'the service is opening its data' },
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
    await listening(server, { host: target.host, port: target.port, backlog: config.backlog });
    // A failed accept must not end the process.
    server.on('error', () => undefined);
    this.#servers.push({ bind, server });
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
