/**
 * Answers probes at the addresses of a service while the service opens its data.
 *
 * Contract: `/healthz` answers 200; every other request answers 503 `not_ready` with `Retry-After`. `ingress.listen(starting)`
 * takes over the listening sockets, so no connection is refused in between; connections that are open then are closed.
 * Only TCP addresses: a Unix socket has no prober before the service listens.
 * Bound: `CONNECTIONS_MAX` connections; each carries one request, whose body is not read. Overflow: closed at once.
 * Cancellation: `close` ends it when the start fails.
 */
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { RonError } from '@ron/kernel';
import { parseBind, type BindTarget } from './bind.ts';
import { newCorrId } from './corr-id.ts';
import { ingressConfig, type IngressConfig } from './limits.ts';
import { problemFor } from './problem.ts';
import { listening } from './listen.ts';
import { readTls, type TlsMaterial } from './tls.ts';

const CONNECTIONS_MAX = 64;
const RETRY_AFTER_MS = 1000;
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
    const options = { headersTimeout: config.header_timeout_ms, maxHeaderSize: config.header_bytes_max };
    const server =
      tls === undefined
        ? createServer(options, answer)
        : createTlsServer({ ...options, ...tls, minVersion: 'TLSv1.2' }, answer);
    server.maxConnections = CONNECTIONS_MAX;
    // A client that sends no HTTP is not answered.
    server.on('clientError', (_error, socket) => socket.destroy());
    await listening(server, { host: target.host, port: target.port, backlog: config.backlog });
    // A failed accept must not end the process.
    server.on('error', () => undefined);
    this.#servers.set(bind, server);
  }
}

const answer: RequestListener = (req, res) => {
  const isProbe = req.url === '/healthz' && (req.method === 'GET' || req.method === 'HEAD');
  const refusal = new RonError('not_ready', 'the service is opening its data', { retry_after_ms: RETRY_AFTER_MS });
  const { status, headers, body } = isProbe
    ? { status: 200, headers: OK_HEADERS, body: OK }
    : problemFor(refusal, newCorrId());
  res.writeHead(status, { ...headers, connection: 'close' });
  res.end(req.method === 'HEAD' ? undefined : body);
};
