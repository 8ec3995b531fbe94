/**
 * One hardened HTTP listener for a service: it takes a table of routes, and listens, drains and closes.
 *
 *   socket -> connection limits -> socket fast path: a simple GET for bytes in RAM? one write, no parser   (not over TLS)
 *          -> Node's parser -> one request per connection at a time -> checks: target, headers, Host, path
 *          -> drain? -> ready? -> rate and in-flight, in total and per address
 *          -> fast path: GET or HEAD of bytes in RAM, answered without the router
 *          -> router -> capability (chain, header caveats) -> body limit -> decompression guard -> queue
 *          -> handler (body caveats while reading) -> answer
 */
import type { Server as TlsServer } from 'node:https';
import { RonError } from '@ron/kernel';
import type { Admission } from '@ron/kernel';
import { createCore, createListeners, createRequestPath } from './assembly.ts';
import type { IngressInit } from './ingress-init.ts';
import { ingressConfig } from './limits.ts';
import { guardOpenReads, mainTarget, parseBind } from './listen/bind.ts';
import { Drain } from './listen/drain.ts';
import type { StartingListener } from './listen/starting-listener.ts';
import { readTls, reloadTls } from './listen/tls.ts';
import type { Readiness } from './table/readiness.ts';
import { routeName } from './table/routes.ts';
import type { Route } from './table/routes.ts';

export interface Ingress extends AsyncDisposable {
  readonly readiness: Readiness;
  readonly admission: Admission;
  readonly draining: boolean;
  /** The URL of the main listener. Throws before `listen`. */
  readonly url: string;
  /** The URL of the Unix socket, `unix:PATH`. */
  readonly socket_url: string | undefined;
  readonly metrics_url: string | undefined;
  /** `from`: the listener that answered probes at the same addresses; its listening sockets are taken over. */
  listen(from?: StartingListener): Promise<string>;
  /** Refuses work from now on; see `Drain`. */
  beginDrain(): void;
  /** Waits until every request in flight is answered; false if the signal aborted first. Does not cut requests. */
  drained(signal: AbortSignal): Promise<boolean>;
  /** Drains, then stops. Requests that are still running when `signal` aborts are cut and counted. */
  close(signal: AbortSignal): Promise<{ aborted: number }>;
  /** Reloads the certificate files. If they cannot be used, it rejects and keeps the old pair. */
  reloadTls(): Promise<void>;
}

export async function createIngress(init: IngressInit): Promise<Ingress> {
  const config = ingressConfig(init.config);
  const target = mainTarget(config);
  const metrics_target = config.metrics_addr === undefined ? undefined : parseBind(config.metrics_addr);
  guardOpenReads(target, openReads(init.routes), config.open_beyond_loopback);
  const tls = config.tls === undefined ? undefined : await readTls(config.tls);

  const core = createCore(init, config, tls !== undefined);
  const gate = core.readiness.gate('draining', { kind: 'hard' });
  const requests = createRequestPath(init, core, target, metrics_target);
  const { main, local, second } = createListeners(core, requests, tls, metrics_target !== undefined);
  const { closing, draining, responder, sweeper } = core;
  const drain = new Drain({
    listeners: [main, local, second].filter((listener) => listener !== undefined),
    sweeper,
    responder,
    gate,
    draining,
    orphaned: () => requests.host.orphaned,
  });

  const close = async (signal: AbortSignal): Promise<{ aborted: number }> => {
    const result = await drain.close(signal);
    closing.abort(new RonError('closed', 'the listener is closed'));
    return result;
  };
  return {
    readiness: core.readiness,
    admission: core.admission,
    get draining() {
      return drain.begun;
    },
    get url() {
      return main.url;
    },
    get socket_url() {
      return local?.url;
    },
    get metrics_url() {
      return second?.url;
    },
    async listen(from) {
      if (second !== undefined && metrics_target !== undefined) {
        await second.listen(metrics_target, from?.release('metrics_addr'));
      }
      const url = await main.listen(target, from?.release('bind'));
      if (config.socket !== undefined) await local?.listen({ kind: 'unix', path: config.socket });
      return url;
    },
    beginDrain: () => drain.begin(),
    drained: (signal) => drain.drained(signal),
    close,
    async reloadTls() {
      if (config.tls !== undefined) await reloadTls(main.server as unknown as TlsServer, config.tls);
    },
    async [Symbol.asyncDispose]() {
      await close(AbortSignal.abort());
    },
  };
}

function openReads(routes: readonly Route[]): string[] {
  return routes.filter((row) => row.scope === null && row.access !== 'health').map(routeName);
}
