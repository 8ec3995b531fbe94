/**
 * Every limit of a listener, declared once. Defaults, validation, the keys of the configuration (`ingress-keys.ts`) and
 * their documentation derive from this table.
 *
 * Contract: a row names the unit, the default, the bounds for operators and one line of documentation. `key` is the name
 * of the limit in a configuration; rows without one are set in code only. `seed` is its name in the edge specification,
 * `ratelimit` that in the index specification.
 * `default: undefined` means off, or derived from another limit as documented.
 * Bound: nothing in this package is unbounded; a bound that operators may want to change has a key.
 *
 *   ingressConfig({ max_inflight: 64 }).header_timeout_ms   // 5000, the default of its row
 */
import { assert } from '@ron/kernel';

const KIB = 1024;
const MIB = 1024 * KIB;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const MANY = 1_000_000;
const TIMEOUT_SECS = { key: 'ingress.timeout_secs', default: 5 } as const;

export type LimitUnit = 'count' | 'bytes' | 'bytes_per_s' | 'ms';

export interface LimitRow {
  readonly unit: LimitUnit;
  readonly default: number | undefined;
  /** For operators. In code a limit must be positive, or not negative where `min` is 0. */
  readonly min: number;
  readonly max: number;
  readonly doc: string;
  readonly key?: string;
  /** A key whose name ends in `_secs` is in seconds; several limits may share one. */
  readonly seed?: { readonly key: string; readonly default: number };
  /** Its name in the index specification. */
  readonly ratelimit?: string;
}

// prettier-ignore
export const LIMITS = {
  max_inflight: {
    unit: 'count', default: 512, min: 1, max: 65_536, key: 'server.max_inflight',
    seed: { key: 'ingress.max_inflight', default: 512 },
    doc: 'Requests that execute or stream concurrently; more get 429.',
  },
  inflight_reserve: {
    unit: 'count', default: undefined, min: 0, max: 65_535, key: 'server.inflight_reserve',
    doc: 'Part of max_inflight that is reserved for services of this node. Default: a sixteenth, at least 4 and at most a quarter.',
  },
  inflight_per_ip_max: {
    unit: 'count', default: undefined, min: 1, max: 65_536, key: 'server.inflight_per_ip',
    doc: 'Requests in flight or queued per address; more get 429. Default: half of max_inflight.',
  },
  rps_limit_per_ip: {
    unit: 'count', default: undefined, min: 1, max: MANY, key: 'server.max_rps_per_ip',
    ratelimit: 'ratelimit.per_ip_rps',
    doc: 'Requests per second per address; more get 429.',
  },
  rps_burst_per_ip: {
    unit: 'count', default: undefined, min: 1, max: MANY, key: 'server.rps_burst_per_ip',
    ratelimit: 'ratelimit.per_ip_burst',
    doc: 'Burst per address above its rate. Default: half of the rate.',
  },
  parked_max: {
    unit: 'count', default: 1024, min: 1, max: MANY, key: 'server.parked_max',
    doc: 'Parked requests that wait for an event; more get 429.',
  },
  events_max: {
    unit: 'count', default: 256, min: 1, max: MANY, key: 'server.events_max',
    doc: 'Open event streams; more get 429.',
  },
  events_heartbeat_ms: {
    unit: 'ms', default: 15_000, min: 10, max: HOUR_MS,
    doc: 'Interval of comments on a quiet event stream.',
  },
  pipelined_max: {
    unit: 'count', default: 32, min: 1, max: 1024,
    doc: 'Pipelined requests that wait behind another on one connection; the next gets 429 and the connection closes.',
  },
  rps_limit: {
    unit: 'count', default: undefined, min: 1, max: MANY, key: 'server.max_rps',
    seed: { key: 'ingress.rps_limit', default: 500 },
    doc: 'Requests per second; more get 429.',
  },
  rps_burst: {
    unit: 'count', default: 250, min: 1, max: MANY, key: 'server.rps_burst',
    doc: 'Burst above the rate.',
  },
  max_conns: {
    unit: 'count', default: 1024, min: 1, max: MANY, key: 'max_conns',
    doc: 'Open connections in total.',
  },
  connection_limit_per_ip: {
    unit: 'count', default: 256, min: 1, max: MANY, key: 'server.connection_limit_per_ip',
    doc: 'Open connections per address; connections that presented a capability do not count.',
  },
  backlog: {
    unit: 'count', default: 4096, min: 1, max: 65_535,
    doc: 'Connections that the kernel queues before they are accepted.',
  },
  header_bytes_max: {
    unit: 'bytes', default: 16 * KIB, min: KIB, max: MIB, key: 'server.header_bytes',
    doc: 'Size of the request line and headers.',
  },
  header_count_max: {
    unit: 'count', default: 128, min: 1, max: 1024,
    doc: 'Number of header lines of a request.',
  },
  body_bytes_max: {
    unit: 'bytes', default: MIB, min: KIB, max: 64 * MIB, key: 'server.body_bytes',
    seed: { key: 'ingress.body_bytes', default: MIB },
    doc: 'Size of a buffered body.',
  },
  decompress_max_ratio: {
    unit: 'count', default: 10, min: 1, max: 1000, key: 'server.decompress_max_ratio',
    seed: { key: 'ingress.decompress_max_ratio', default: 10 },
    doc: 'Decoded bytes per encoded byte.',
  },
  decompress_abs_bytes: {
    unit: 'bytes', default: 10 * MIB, min: KIB, max: 1024 * MIB, key: 'server.decompress_abs_bytes',
    seed: { key: 'ingress.decompress_abs_bytes', default: 10 * MIB },
    doc: 'Decoded bytes of a compressed body.',
  },
  header_timeout_ms: {
    unit: 'ms', default: 5000, min: 10, max: 5 * MINUTE_MS, key: 'server.header_timeout', seed: TIMEOUT_SECS,
    doc: 'Time from the connect, or the first byte of a later request, to the end of the headers.',
  },
  read_timeout_ms: {
    unit: 'ms', default: 5000, min: 10, max: 5 * MINUTE_MS, key: 'read_timeout', seed: TIMEOUT_SECS,
    doc: 'Total time of a buffered body; time without progress of a streamed one.',
  },
  write_timeout_ms: {
    unit: 'ms', default: 5000, min: 10, max: 5 * MINUTE_MS, key: 'write_timeout', seed: TIMEOUT_SECS,
    doc: 'How long a client may acknowledge nothing before its answer is cut. Acknowledged bytes add time at rate_min.',
  },
  idle_timeout_ms: {
    unit: 'ms', default: MINUTE_MS, min: 10, max: HOUR_MS, key: 'idle_timeout',
    doc: 'Idle time of a connection between two requests.',
  },
  rate_bytes_per_s_min: {
    unit: 'bytes_per_s', default: KIB, min: 0, max: 1024 * 1024 * MIB, key: 'server.rate_min',
    doc: 'Streamed bodies and answers that are slower than this on average are cut. Bytes already read, at most 1 MiB, allow a pause.',
  },
  request_deadline_ms: {
    unit: 'ms', default: 5000, min: 10, max: HOUR_MS, key: 'server.request_deadline', seed: TIMEOUT_SECS,
    doc: 'Budget of a request whose route sets none.',
  },
  sweep_ms: {
    unit: 'ms', default: 100, min: 1, max: 1000,
    doc: 'Period of the sweep for stalled transfers and, while draining, for idle connections.',
  },
  drain_idle_ms: {
    unit: 'ms', default: 250, min: 1, max: MINUTE_MS,
    doc: 'While draining, a connection that was used this recently may send one more request, which gets 503.',
  },
} as const satisfies Readonly<Record<string, LimitRow>>;

export type LimitName = keyof typeof LIMITS;

export type IngressLimits = {
  readonly [N in LimitName]: (typeof LIMITS)[N]['default'] extends undefined ? number | undefined : number;
};

export interface TlsFiles {
  /** PEM files; read at start and on every reload. */
  readonly cert_file: string;
  readonly key_file: string;
}

export interface IngressConfig extends IngressLimits {
  /** `host:port`, `[v6]:port`, or `unix:/path/to/socket`. Port 0 picks a free one. Default `127.0.0.1:0`. */
  readonly bind: string;
  /** A Unix socket with the same routes and limits, in a directory of mode 0700. Default none. */
  readonly socket: string | undefined;
  /** An inherited socket that is bound to `bind`: the parent keeps it across restarts. Default none: binds itself. */
  readonly listen_fd: number | undefined;
  /** A second listener for health, metrics and version only, so that a full main listener cannot hide them. */
  readonly metrics_addr: string | undefined;
  /** Addresses or CIDR ranges whose forwarding headers are trusted. Default none. */
  readonly trusted_proxies: readonly string[];
  /** Further accepted Host values on a loopback bind. Default none: localhost, 127.0.0.1 and [::1] only. */
  readonly hosts: readonly string[];
  readonly tls: TlsFiles | undefined;
  /** A service with open reads binds beyond loopback only if this is set. Default false. */
  readonly open_beyond_loopback: boolean;
  /** Log every request, not only failures. Default false: a log line costs more than a small answer. */
  readonly access_log: boolean;
}

export const limitRows = (): [LimitName, LimitRow][] => Object.entries(LIMITS) as [LimitName, LimitRow][];

export const INGRESS_DEFAULTS: IngressConfig = Object.freeze({
  bind: '127.0.0.1:0',
  socket: undefined,
  listen_fd: undefined,
  metrics_addr: undefined,
  trusted_proxies: [],
  hosts: [],
  tls: undefined,
  open_beyond_loopback: false,
  access_log: false,
  ...(Object.fromEntries(limitRows().map(([name, row]) => [name, row.default])) as unknown as IngressLimits),
});

/** The expected value if the reserve would leave no permit for other callers; undefined if the two limits are consistent. */
export function reserveExpected(limits: Pick<IngressLimits, 'max_inflight' | 'inflight_reserve'>): string | undefined {
  const { max_inflight, inflight_reserve = 0 } = limits;
  return inflight_reserve < max_inflight ? undefined : `a number below max_inflight, which is ${max_inflight}`;
}

/** Fills in the defaults. An unusable number is a defect of the caller. */
export function ingressConfig(given: Partial<IngressConfig> = {}): IngressConfig {
  const config = { ...INGRESS_DEFAULTS, ...given };
  for (const [name, row] of limitRows()) {
    const value = config[name];
    if (value === undefined && row.default === undefined) continue;
    const isUsable = Number.isFinite(value) && (row.min === 0 ? value! >= 0 : value! > 0);
    assert(isUsable, `ingress ${name} must be a positive number${row.min === 0 ? ' or 0' : ''}, found ${value}`);
  }
  const expected = reserveExpected(config);
  assert(expected === undefined, `ingress inflight_reserve must be ${expected}`);
  return Object.freeze(config);
}
