/**
 * Fetches assets from HTTPS origins.
 *
 * Contract: one request with no header of the client: `Accept-Encoding: identity`, and the validators of the stale asset. An
 * accepted answer (`answer-rules.ts`) is decoded, hashed and written as it arrives, and returned only once it is complete.
 * A 304 that does not confirm the stale asset is followed by one request without validators. Every try after the first begins
 * with an empty body. Addresses, certificates and framing are checked by the HTTP client.
 * Bound: `fill.object_bytes_max` as sent and decoded, the caps for decoded bytes, and the deadlines of each step within the
 * deadline of the fill [edge I-4] [edge I-10]. Retries: `retry.live_fill`, after timeouts, 503 and 504 only.
 * Cancellation: by the deadline; `disconnect` ends the exchanges with an origin.
 */
import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { Egress, type Answer, type EgressInit, type Peer } from '@ron/egress';
import { Deadline, liveFill, RonError, sched } from '@ron/kernel';
import type { BodyWriter } from '../../cache/asset-cache.ts';
import type { CachedAsset, Provenance } from '../../cache/cached-asset.ts';
import type { EdgeConfig } from '../../config.ts';
import { bodyOf, writeBody, type BodySink, type Fetched } from '../fetched.ts';
import type { LiveAsset } from '../live-path.ts';
import { judgeAnswer, type AnswerTimes, type UsableAnswer } from './answer-rules.ts';
import { originError, timedOutOp } from './origin-errors.ts';
import { unstoredWriter } from './unstored-body.ts';

const CONNECT_MS = 1000;
const FIRST_BYTE_MS = 1500;
const IDLE_MS = 1000;
const BODY_BYTES_MAX = 2 ** 30;

export interface OriginsInit {
  /** The configuration in force, read at each fetch. */
  readonly config: () => EdgeConfig;
  readonly cache: BodySink;
  /** PEM of `fill.ca_file`. */
  readonly ca: string | undefined;
  readonly breaker: EgressInit['breaker'];
  /** The deadline of a fill. */
  readonly total_ms: number;
  readonly onRetry: (result: 'ok' | 'failed') => void;
  readonly onTimeout: (op: 'connect' | 'fill') => void;
  /** Replaced by tests: the resolver, and the function that connects. */
  readonly network?: Pick<EgressInit, 'lookup' | 'connect'>;
}

/** The PEM of `fill.ca_file`; undefined without one. */
export async function readCa(file: string | undefined): Promise<string | undefined> {
  return file === undefined ? undefined : await readFile(file, 'utf8');
}

export class Origins implements AsyncDisposable {
  readonly #init: OriginsInit;
  readonly #egress: Egress;
  /** Fetches under way, by origin: at most one for each worker. */
  readonly #running = new Map<Deadline, string>();

  /** Throws `validation` for networks or a CA that cannot be read. */
  constructor(init: OriginsInit) {
    this.#init = init;
    const { edge, fill, ingress } = init.config();
    // Each worker has a connection, so none waits for one.
    const sockets_max = edge.workers;
    this.#egress = new Egress({
      name: 'live_fill',
      ports: 'any',
      networks: fill.networks,
      ...(init.ca !== undefined && { ca: { pem: init.ca, mode: 'add' } }),
      // Only allow-listed origins are dialled, each with its own connections, and surplus bytes close a connection.
      reuse: 'all',
      ...(init.breaker !== undefined && { breaker: init.breaker }),
      limits: {
        connect_ms: CONNECT_MS,
        tls_ms: CONNECT_MS,
        first_byte_ms: FIRST_BYTE_MS,
        idle_ms: IDLE_MS,
        total_ms: init.total_ms,
        body_bytes_max: BODY_BYTES_MAX,
        decompress_ratio_max: ingress.decompress_max_ratio,
        decompress_bytes_max: ingress.decompress_abs_bytes,
        sockets_per_origin: sockets_max,
        sockets_max,
        idle_sockets_max: sockets_max,
        waiting_max: sockets_max,
      },
      onRetry: (_op, result) => init.onRetry(result),
      onOutcome: (_outcome, error) => {
        const op = timedOutOp(error);
        if (op !== undefined) init.onTimeout(op);
      },
      ...init.network,
    });
  }

  /** Fetches under way. */
  get size(): number {
    return this.#running.size;
  }

  /** Calls that an open breaker refused. */
  get refused_total(): number {
    return this.#egress.outcomes.breaker_open;
  }

  /** Origins whose breaker is open. */
  get failing(): readonly string[] {
    return this.#egress.openOrigins;
  }

  /** Rejects with `bad_gateway`, `timeout`, `payload_too_large`, `decompress_cap`, `breaker_open` or `canceled`. */
  async fetch(asset: LiveAsset, stale: CachedAsset | undefined, deadline: Deadline): Promise<Fetched> {
    using scope = Deadline.unlimited('fill', { parent: deadline });
    this.#running.set(scope, asset.origin);
    try {
      const fetched = await this.#exchange(asset, stale, scope);
      if (fetched !== undefined) return fetched;
      // Without conditions, an origin that sends 304 again is refused.
      return (await this.#exchange(asset, undefined, scope))!;
    } catch (error) {
      throw originError(error);
    } finally {
      this.#running.delete(scope);
    }
  }

  /** Closes the connections to an origin. Exchanges with it fail, those that pause before another try included. */
  disconnect(origin: string): void {
    for (const [scope, running] of this.#running) {
      if (running === origin) scope.cancel(new RonError('canceled', 'the connections to the origin were closed'));
    }
    this.#egress.disconnect(origin);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#egress.close();
  }

  /** Undefined: the origin answered 304 and did not confirm the stale asset. */
  async #exchange(asset: LiveAsset, stale: CachedAsset | undefined, deadline: Deadline): Promise<Fetched | undefined> {
    const { fill, retry } = this.#init.config();
    const { base_ms, max_ms, max_retries, jitter } = retry.live_fill;
    const began_ms = sched.now_ms();
    const headers = validatorsOf(stale);
    const request = { url: asset.url, headers, bytes_max: fill.object_bytes_max, decode: true };
    const policy = liveFill({ base_ms, max_ms, tries_max: max_retries + 1, jitter });
    return await this.#egress.exchange(request, { deadline, retry: policy }, async (answer, signal) => {
      // From the monotonic clock: the wall clock may be set while the request is under way.
      const response_ms = sched.wall_ms();
      const times = { request_ms: response_ms - (sched.now_ms() - began_ms), response_ms };
      const judged = judgeAnswer(answer.status, answer.headers, times, fill, stale?.meta);
      return judged.kind === 'unconfirmed'
        ? undefined
        : await this.#fetched(asset, stale, { answer, judged, times }, signal);
    });
  }

  async #fetched(
    asset: LiveAsset,
    stale: CachedAsset | undefined,
    { answer, judged, times }: { answer: Answer; judged: UsableAnswer; times: AnswerTimes },
    signal: AbortSignal,
  ): Promise<Fetched> {
    if (judged.kind === 'absent') return { kind: 'absent', isKept: judged.isStorable };
    const { freshness, etag, isStorable } = judged;
    if (judged.kind === 'unchanged') {
      const body = bodyOf(stale!);
      const provenance = provenanceOf(asset, answer.peer, body, etag, times);
      const meta = { ...stale!.meta, etag, freshness, provenance, log_index: undefined };
      return { kind: 'asset', how: 'revalidated', meta, body, isStorable };
    }
    const { media_type } = judged;
    const writer = this.#writer(isStorable, statedSize(answer));
    const body = await writeBody(writer, answer.body, media_type, signal);
    const provenance = provenanceOf(asset, answer.peer, body, etag, times);
    const { address, size } = body;
    const meta = { key: asset.key, address, size, media_type, etag, freshness, provenance, log_index: undefined };
    return { kind: 'asset', how: 'fetched', meta, body, isStorable };
  }

  #writer(isStorable: boolean, stated_bytes: number | undefined): BodyWriter {
    const bytes_max = this.#init.config().fill.object_bytes_max;
    return isStorable ? this.#init.cache.writer(bytes_max, stated_bytes) : unstoredWriter(bytes_max);
  }
}

/** Undefined if the origin does not state it, or if the body is encoded. A false one costs a copy. */
function statedSize({ headers }: Answer): number | undefined {
  const [length] = headers['content-length'] ?? [];
  return length === undefined || headers['content-encoding'] !== undefined ? undefined : Number(length);
}

function validatorsOf(stale: CachedAsset | undefined): Record<string, string> {
  const { etag, freshness } = stale?.meta ?? {};
  const last_modified = freshness?.last_modified;
  return {
    ...(etag !== undefined && { 'if-none-match': etag }),
    ...(last_modified !== undefined && { 'if-modified-since': last_modified }),
  };
}

function provenanceOf(
  { key, origin }: LiveAsset,
  peer: Peer,
  { size, address }: { readonly size: number; readonly address: Provenance['address'] },
  etag: string | undefined,
  { response_ms }: AnswerTimes,
): Provenance {
  const host = origin.slice('https://'.length);
  return { key, host, ...connectionOf(peer), etag, size, address, time_ms: response_ms };
}

type Connection = Pick<Provenance, 'dialled' | 'certificate_key'>;

/** By peer: each connection has one, for all its answers. */
const connections = new WeakMap<Peer, Connection>();

function connectionOf(peer: Peer): Connection {
  const known = connections.get(peer);
  if (known !== undefined) return known;
  const { address, port, spki_sha256 = '' } = peer;
  const connection = {
    dialled: `${isIPv6(address) ? `[${address}]` : address}:${port}`,
    certificate_key: Buffer.from(spki_sha256, 'base64').toString('hex'),
  };
  connections.set(peer, connection);
  return connection;
}
