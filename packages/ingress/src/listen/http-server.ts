/**
 * A `node:http` server with every limit set that has a counterpart in `limits.ts`, for the listeners of a service and
 * for the one that answers while the service starts.
 *
 * Contract: the header timeout runs from the connect and is checked at least four times a second. Bodies and answers
 * have no limit here; the callers set one.
 *
 *   const server = createHttpServer(ingressConfig({ header_timeout_ms: 1000 }), undefined);
 */
import { createServer } from '@ron/kernel/http';
import type { Server } from 'node:http';
import type { IngressConfig } from '../limits.ts';
import { createTlsServer } from './tls.ts';
import type { TlsMaterial } from './tls.ts';

export function createHttpServer(config: IngressConfig, tls: TlsMaterial | undefined): Server {
  const options = {
    // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4] Header and idle time; bodies and answers are timed by the sweeper.
    headersTimeout: config.header_timeout_ms,
    // A total over the whole request would cut healthy uploads; bodies have timeouts of their own.
    requestTimeout: 0,
    connectionsCheckingInterval: Math.min(config.sweep_ms, 250),
    keepAliveTimeout: config.idle_timeout_ms,
    maxHeaderSize: config.header_bytes_max,
    noDelay: true,
    insecureHTTPParser: false,
    // Checked by `RequestChecks`, so that the refusal is a problem answer like all others.
    requireHostHeader: false,
    joinDuplicateHeaders: false,
    optimizeEmptyRequests: true,
  };
  const server = tls === undefined ? createServer(options) : createTlsServer(options, tls);
  // Node silently drops header lines beyond its count; the size limit bounds them and `RequestChecks` counts them.
  server.maxHeadersCount = 0;
  server.timeout = 0;
  return server;
}
