/**
 * Forwards requests to other services of this node, by name from a table.
 *
 * Contract: only the table decides where a request goes; a client cannot choose an address. Hop-by-hop headers are
 * removed in both directions, as are the client's `Host`, `Authorization`, `Cookie` and forwarding headers: the route
 * adds those that the upstream needs. Bodies are streamed in both directions with back-pressure. Until the upstream's
 * headers arrive, a failure is a problem: 502 `bad_gateway`, 504 `timeout`. If the upstream fails afterwards, the
 * client's connection is destroyed, so that the client detects the truncation.
 * Bound: `requests_max` requests, half of them for one client address; as many connections per upstream; two buffers per
 * request. Time: `connect_ms`, `head_ms` from the end of the request to the upstream's headers, `stall_ms` without a
 * byte read or sent by the upstream. The limits of the listener apply to the client.
 * Overflow: 429 `busy`.
 * Cancellation: a client that leaves ends the upstream request. `close()` ends all.
 *
 *   const proxy = new ReverseProxy({ upstreams: { storage: () => ({ host: '127.0.0.1', port: 7101 }) } });
 *   route({ method: 'GET', path: '/api/storage/*', body: 'forward', ...,
 *     handler: () => proxy.answer('storage', { strip: '/api/storage', headers: { Authorization: `Bearer ${token}` } }) });
 */
import { Agent } from '@ron/kernel/http';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { RonError } from '@ron/kernel';
import type { ClientAddress } from '@ron/kernel';
import { Forwarding } from './forwarding.ts';
import type { ForwardLimits } from './forwarding.ts';
import { endToEnd } from '@ron/http';
import type { AnswerHeaders } from '../table/routes.ts';
import { SlotLimit } from '../guards/slot-limit.ts';

export type Upstream = { readonly host: string; readonly port: number } | { readonly socketPath: string };

export interface ReverseProxyInit extends Partial<ForwardLimits> {
  /** By name. Called for each request, because a service may move when it restarts; undefined: not running. */
  readonly upstreams: Readonly<Record<string, () => Upstream | undefined>>;
  /** Concurrent forwarded requests, half of them for one client address. Default 64. */
  readonly requests_max?: number;
}

export interface ForwardInit {
  /** The prefix of the request target that is removed. Default none. */
  readonly strip?: string;
  /** Headers for the upstream. They replace headers of the client with the same name. */
  readonly headers?: AnswerHeaders;
  /** Called with the status of the upstream before anything of its answer is sent. May throw: the error is the answer then. */
  readonly onHead?: (status: number, headers: IncomingHttpHeaders) => void;
}

/** The upstream's answer. Only a `ReverseProxy` creates one: no other handler writes to the response itself. */
export interface ForwardAnswer {
  readonly kind: 'forward';
  readonly send: (req: IncomingMessage, res: ServerResponse, client: ForwardClient) => Promise<void>;
}

/** The client of a forwarded request, as its listener sees it. */
export interface ForwardClient {
  /** Aborts when the client leaves. */
  readonly gone: AbortSignal;
  /** The address whose share of the slots the request uses; undefined for internal callers. */
  readonly address: ClientAddress | undefined;
  /** Called when no slot is free, before the request is refused with 429 `busy`. */
  readonly onBusy: () => void;
}

const REQUESTS_MAX = 64;
const LIMITS: ForwardLimits = { connect_ms: 1000, head_ms: 10_000, stall_ms: 30_000 };
const FREE_SOCKETS_MAX = 8;
/** Not forwarded: they belong to this hop, or would let a client impersonate another. */
const NOT_FORWARDED = [
  'authorization',
  'cookie',
  'expect',
  'forwarded',
  'host',
  'x-corr-id',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
];
/** Set by this listener. */
const NOT_RETURNED = new Set(['date', 'x-corr-id', 'strict-transport-security']);

export class ReverseProxy implements Disposable {
  readonly #upstreams: ReverseProxyInit['upstreams'];
  readonly #limits: ForwardLimits;
  readonly #slots: SlotLimit;
  readonly #agent: Agent;
  readonly #running = new Set<Forwarding>();
  #closed = false;
  /** Requests refused because no slot was free. */
  busy_total = 0;

  constructor(init: ReverseProxyInit) {
    const { upstreams, requests_max = REQUESTS_MAX, ...limits } = init;
    this.#upstreams = upstreams;
    this.#limits = { ...LIMITS, ...limits };
    this.#slots = new SlotLimit(requests_max, () => (this.busy_total += 1));
    this.#agent = new Agent({ keepAlive: true, maxSockets: requests_max, maxFreeSockets: FREE_SOCKETS_MAX });
  }

  /** Requests that are being forwarded. */
  get depth(): number {
    return this.#running.size;
  }

  /** The answer of a route with the body mode `forward`. */
  answer(name: string, init: ForwardInit = {}): ForwardAnswer {
    if (!Object.hasOwn(this.#upstreams, name)) throw new RonError('not_found', 'no such upstream');
    const upstream = this.#upstreams[name]!();
    if (upstream === undefined) throw new RonError('bad_gateway', `the upstream ${name} is not running`);
    return {
      kind: 'forward',
      send: async (req, res, { gone, address, onBusy }) => {
        if (this.#closed) throw closed();
        if (!this.#slots.tryTake(address)) {
          onBusy();
          throw new RonError('busy', 'the limit on forwarded requests is reached');
        }
        try {
          await this.#forward(upstream, init, req, res, gone);
        } finally {
          this.#slots.give(address);
        }
      },
    };
  }

  async #forward(
    upstream: Upstream,
    init: ForwardInit,
    req: IncomingMessage,
    res: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const forwarding = new Forwarding(req, res, this.#limits, gone, NOT_RETURNED, init.onHead);
    this.#running.add(forwarding);
    try {
      await forwarding.run({
        ...upstream,
        agent: this.#agent,
        method: req.method!,
        path: targetOf(req.url!, init.strip ?? ''),
        headers: this.#headers(req, res, init.headers ?? {}),
      });
    } finally {
      this.#running.delete(forwarding);
    }
  }

  #headers(req: IncomingMessage, res: ServerResponse, own: AnswerHeaders): string[] {
    const drop = new Set([...NOT_FORWARDED, ...Object.keys(own).map((name) => name.toLowerCase())]);
    const headers = endToEnd(req.rawHeaders, drop);
    headers.push('Host', 'localhost', 'X-Corr-ID', String(res.getHeader('X-Corr-ID')));
    for (const name in own) headers.push(name, own[name]!);
    if (req.headers['transfer-encoding'] !== undefined) headers.push('Transfer-Encoding', 'chunked');
    return headers;
  }

  close(): void {
    this.#closed = true;
    for (const forwarding of this.#running) forwarding.fail(closed());
    this.#agent.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

const closed = (): RonError => new RonError('draining', 'the proxy is closed');

function targetOf(url: string, strip: string): string {
  // The router also matches other spellings of the prefix, such as `/api/%73torage`.
  if (!url.startsWith(strip)) throw new RonError('not_found', 'no such path');
  const target = url.slice(strip.length);
  return target.startsWith('/') ? target : `/${target}`;
}
