/**
 * Every limit of an egress client, with its default. Stage deadlines run inside the caller's deadline.
 */
export interface EgressLimits {
  /** Resolving the host name. */
  readonly dns_ms: number;
  /** The TCP connection, over all addresses of the host. */
  readonly connect_ms: number;
  readonly tls_ms: number;
  /** From the connected socket to the end of the header section of the final answer. */
  readonly first_byte_ms: number;
  /** Between two pieces of the body, measured only while the reader waits. */
  readonly idle_ms: number;
  /** Everything together: all tries, their pauses, and the reading of the body. */
  readonly total_ms: number;
  /** Status line and header section of one answer. */
  readonly header_bytes_max: number;
  /** Bytes of a body as sent; a request may lower it. */
  readonly body_bytes_max: number;
  /** Decoded bytes per encoded byte, for requests with `decode`. */
  readonly decompress_ratio_max: number;
  readonly decompress_bytes_max: number;
  /** Bytes of a request body. */
  readonly request_bytes_max: number;
  /** Interim answers (1xx) before the final one. */
  readonly informational_max: number;
  /** Connections in use to one origin. */
  readonly sockets_per_origin: number;
  /** Connections in use in total. */
  readonly sockets_max: number;
  /** Requests that wait for a connection; one more is `busy`. */
  readonly waiting_max: number;
  /** Idle connections kept in total, of those that `reuse` allows; 0 closes each connection after its answer. */
  readonly idle_sockets_max: number;
  /** Below the 5 s after which many servers close an idle connection. */
  readonly idle_socket_ms: number;
  /** Host lookups at once, including those whose callers have left; one more is `busy`. */
  readonly lookups_max: number;
  /** Addresses of one host that are tried. */
  readonly addresses_max: number;
  /** Origins with a circuit breaker. */
  readonly breakers_max: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;

export const EGRESS_LIMITS: EgressLimits = {
  dns_ms: 1000,
  connect_ms: 1000,
  tls_ms: 1500,
  first_byte_ms: 1500,
  idle_ms: 1000,
  total_ms: 5000,
  header_bytes_max: 16 * KIB,
  body_bytes_max: 10 * MIB,
  decompress_ratio_max: 10,
  decompress_bytes_max: 10 * MIB,
  request_bytes_max: MIB,
  informational_max: 8,
  sockets_per_origin: 32,
  sockets_max: 128,
  waiting_max: 256,
  idle_sockets_max: 32,
  idle_socket_ms: 4000,
  lookups_max: 16,
  addresses_max: 8,
  breakers_max: 256,
};
