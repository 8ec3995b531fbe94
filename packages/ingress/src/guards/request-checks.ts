/**
 * The checks that every request passes before it is looked up or routed. They exist once; every entry calls them: the
 * main listener, the health listener, the listener of a starting service and both fast paths.
 *
 *   target form -> version, header count, Host, Authorization, framing -> Host allow-list -> path -> (work) drain -> ready
 *
 * Contract: `toOriginForm` comes first and leaves `req.url` in origin form (or `*`), so that the lookup by target, the
 * path guard and the router read the same string. `refusal` checks the request, `workRefusal` the state of the service;
 * both return the error to answer with, or undefined. Admission is not a check: it takes a permit that must be released.
 * Bound: one pass over the target; holds only the last Host that passed. Never throws.
 *
 *   scanHeaders(req.rawHeaders, view);
 *   const refused = checks.toOriginForm(req, view) ?? checks.refusal(req, view) ?? checks.workRefusal();
 *   if (refused !== undefined) return refuse(res, refused);
 */
import type { IncomingMessage } from 'node:http';
import { RonError } from '@ron/kernel';
import { headerRefusal } from './header-checks.ts';
import type { HeaderView } from './header-scan.ts';
import type { HostGuard } from './host-guard.ts';
import { hostName } from './host-guard.ts';
import type { PathGuard } from './path-guard.ts';
import { SERVER_WIDE, splitTarget } from './request-target.ts';
import type { Scheme } from './request-target.ts';

/** The state of the service that decides whether it accepts work. */
export interface WorkState {
  readonly draining: boolean;
  /** The reason why work is refused while the service runs; undefined if it is ready. */
  notReady(): string | undefined;
}

export interface RequestChecksInit {
  readonly scheme: Scheme;
  readonly header_count_max: number;
  readonly hosts: HostGuard;
  readonly path: PathGuard;
  /** Routes that answer while draining and under full load. */
  readonly health_paths: ReadonlySet<string>;
  /** Refuse all other paths: for the health listener. */
  readonly health_only: boolean;
  readonly state: WorkState;
}

const DRAINING = new RonError('draining', 'the service is shutting down');
const HEALTH_ONLY = new RonError('not_found', 'only health routes are served here');
const BAD_FORM = new RonError('bad_path', 'this form of request target is not served');
const BAD_HOST = new RonError('bad_host', 'this listener does not serve that Host');
const SLASH = 47;
/** The longest query of a health route. */
const HEALTH_QUERY_LENGTH_MAX = 80;

export class RequestChecks {
  readonly #init: RequestChecksInit;
  readonly #health_length_max: number;

  constructor(init: RequestChecksInit) {
    this.#init = init;
    this.#health_length_max = Math.max(0, ...[...init.health_paths].map((p) => p.length)) + HEALTH_QUERY_LENGTH_MAX;
  }

  /** Rewrites `req.url`; the authority of an absolute-form target becomes `view.host`. */
  toOriginForm(req: IncomingMessage, view: HeaderView): RonError | undefined {
    const url = req.url!;
    if (url.charCodeAt(0) === SLASH) return undefined;
    const split = splitTarget(req.method!, url, this.#init.scheme);
    if (split === undefined) return BAD_FORM;
    const { authority, target } = split;
    if (authority !== undefined) {
      if (hostName(authority) === undefined) return BAD_HOST;
      view.host = authority;
    }
    req.url = target;
    return undefined;
  }

  /** `is_known`: the target was found in a cache by its exact text, so its path needs no check. */
  refusal(req: IncomingMessage, view: HeaderView, is_known = false): RonError | undefined {
    const { header_count_max, health_only, hosts, path } = this.#init;
    const refused = headerRefusal(req, view, header_count_max);
    if (refused !== undefined) return refused;
    if (view.host !== undefined && !hosts.allows(view.host)) return BAD_HOST;
    const url = req.url!;
    if (!is_known && url !== SERVER_WIDE) {
      const bad_path = path(url);
      if (bad_path !== undefined) return bad_path;
    }
    return health_only && !this.isHealth(url) ? HEALTH_ONLY : undefined;
  }

  /** The error that refuses all work now, if any. */
  workRefusal(): RonError | undefined {
    const { state } = this.#init;
    if (state.draining) return DRAINING;
    const reason = state.notReady();
    return reason === undefined ? undefined : new RonError('not_ready', reason);
  }

  /** All checks that a simple GET needs: its grammar has exactly one Host and no framing. */
  allowsSimpleGet(host: string): boolean {
    return this.#init.hosts.allows(host) && this.workRefusal() === undefined;
  }

  /** Whether the target is a health route. It is subject to `refusal`, but not to `workRefusal`. */
  isHealth(url: string): boolean {
    if (url.length > this.#health_length_max) return false;
    const query = url.indexOf('?');
    return this.#init.health_paths.has(query < 0 ? url : url.slice(0, query));
  }
}
