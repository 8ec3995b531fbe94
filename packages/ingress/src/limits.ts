/**
 * Every limit of a listener in one place, with its default and unit.
 *
 * Promise: nothing in this package is unbounded, and every bound that an operator may want to move is a field here.
 */
import { assert } from '@ron/kernel';

export interface TlsFiles {
  /** PEM files; read at start and again on every reload. */
  readonly cert_file: string;
  readonly key_file: string;
}

export interface IngressConfig {
  /** `host:port`, `[v6]:port`, or `unix:/path/to/socket`. Port 0 picks a free one. Default `127.0.0.1:0`. */
  readonly bind: string;
  /** A second listener for health, metrics and version only, so that a full main listener cannot hide them. */
  readonly metrics_addr: string | undefined;
  /** Requests that execute or stream at once. Default 512. */
  readonly max_inflight: number;
  /** In-flight places that only services of this node and Unix peers can take. Default a sixteenth, at least 4. */
  readonly inflight_reserve: number | undefined;
  /** Requests in flight or in a queue of one address. Default half of `max_inflight`. */
  readonly inflight_per_ip_max: number | undefined;
  /** Requests per second of one address; undefined = no limit. Default off. */
  readonly rps_limit_per_ip: number | undefined;
  /** Requests of one address that may come at once above its rate. Default half of the rate. */
  readonly rps_burst_per_ip: number | undefined;
  /** Pipelined requests that wait for their turn on one connection. Default 32. */
  readonly pipelined_max: number;
  /** Handlers that wait for an event without an in-flight place. Default 1024. */
  readonly parked_max: number;
  /** Event streams that are open at once. Default 256. */
  readonly events_max: number;
  /** Requests per second over all clients; undefined = no limit. Default off. */
  readonly rps_limit: number | undefined;
  /** Requests that may come at once above the rate. Default 250. */
  readonly rps_burst: number;
  /** Open connections in all. Default 1024. */
  readonly max_conns: number;
  /** Open connections of one address. Default 256. */
  readonly connection_limit_per_ip: number;
  /** Kernel queue of connections not yet accepted. Default 4096. */
  readonly backlog: number;
  /** Request line and headers together. Default 16 KiB. */
  readonly header_bytes_max: number;
  /** Header lines in one request. Default 128. */
  readonly header_count_max: number;
  /** A buffered body, after decoding. Default 1 MiB. */
  readonly body_bytes_max: number;
  /** Decoded bytes per encoded byte. Default 10. */
  readonly decompress_max_ratio: number;
  /** Decoded bytes in all, for a compressed buffered body. Default 10 MiB. */
  readonly decompress_abs_bytes: number;
  /** From the first byte of a request (or the connect) to the end of its headers. Default 5 s. */
  readonly header_timeout_ms: number;
  /** A buffered body in total; a streamed body without progress. Default 5 s. */
  readonly read_timeout_ms: number;
  /** A response that the client does not read, without progress. Default 5 s. */
  readonly write_timeout_ms: number;
  /** A connection between two requests. Default 60 s. */
  readonly idle_timeout_ms: number;
  /** Average below which a streamed body or response is cut, after a grace of the no-progress limit. Default 1 KiB/s. */
  readonly rate_bytes_per_s_min: number;
  /** Budget of a request whose route names none. Default 5 s. */
  readonly request_deadline_ms: number;
  /** How often stalled transfers and, while draining, idle connections are looked for. Default 100 ms. */
  readonly sweep_ms: number;
  /** While draining, a connection that was used this recently is left for its next request (it gets 503). Default 250 ms. */
  readonly drain_idle_ms: number;
  /** Addresses or CIDR ranges whose forwarding headers are believed. Default none. */
  readonly trusted_proxies: readonly string[];
  /** Further Host values to answer for on a loopback bind. Default none: localhost, 127.0.0.1 and [::1] only. */
  readonly hosts: readonly string[];
  readonly tls: TlsFiles | undefined;
  /** A service with open reads binds beyond loopback only when this is set. Default false. */
  readonly open_beyond_loopback: boolean;
  /** Log every request, not only failures. Default false: a log line costs more than a small answer. */
  readonly access_log: boolean;
}

const KIB = 1024;
const MIB = 1024 * KIB;

export const INGRESS_DEFAULTS: IngressConfig = Object.freeze({
  bind: '127.0.0.1:0',
  metrics_addr: undefined,
  max_inflight: 512,
  inflight_reserve: undefined,
  inflight_per_ip_max: undefined,
  rps_limit_per_ip: undefined,
  rps_burst_per_ip: undefined,
  pipelined_max: 32,
  parked_max: 1024,
  events_max: 256,
  rps_limit: undefined,
  rps_burst: 250,
  max_conns: 1024,
  connection_limit_per_ip: 256,
  backlog: 4096,
  header_bytes_max: 16 * KIB,
  header_count_max: 128,
  body_bytes_max: MIB,
  decompress_max_ratio: 10,
  decompress_abs_bytes: 10 * MIB,
  header_timeout_ms: 5000,
  read_timeout_ms: 5000,
  write_timeout_ms: 5000,
  idle_timeout_ms: 60_000,
  rate_bytes_per_s_min: KIB,
  request_deadline_ms: 5000,
  sweep_ms: 100,
  drain_idle_ms: 250,
  trusted_proxies: [],
  hosts: [],
  tls: undefined,
  open_beyond_loopback: false,
  access_log: false,
});

const POSITIVE = [
  'max_inflight',
  'pipelined_max',
  'parked_max',
  'events_max',
  'rps_burst',
  'max_conns',
  'connection_limit_per_ip',
  'backlog',
  'header_bytes_max',
  'header_count_max',
  'body_bytes_max',
  'decompress_max_ratio',
  'decompress_abs_bytes',
  'header_timeout_ms',
  'read_timeout_ms',
  'write_timeout_ms',
  'idle_timeout_ms',
  'request_deadline_ms',
  'sweep_ms',
  'drain_idle_ms',
] as const satisfies readonly (keyof IngressConfig)[];

/** Fills in the defaults. A limit that is not a positive finite number is a defect of the caller, not a policy. */
export function ingressConfig(given: Partial<IngressConfig> = {}): IngressConfig {
  const config = { ...INGRESS_DEFAULTS, ...given };
  for (const key of POSITIVE) {
    assert(
      Number.isFinite(config[key]) && config[key] > 0,
      `ingress ${key} must be a positive number, found ${config[key]}`,
    );
  }
  assert(config.rate_bytes_per_s_min >= 0, `ingress rate_bytes_per_s_min must not be negative`);
  return Object.freeze(config);
}
