/**
 * Which missing assets may be fetched: by the mode, the allow-list and the rules of amnesia.
 *
 * Contract: the route checks it before it queues a fill, the worker again before it opens a connection and before it stores
 * the answer, each time against the configuration in force.
 */
import { RonError } from '@ron/kernel';
import type { EdgeConfig } from '../config.ts';
import type { Missing } from './fills.ts';
import { parseOrigin } from './live-path.ts';

export type FillConfig = Pick<EdgeConfig, 'edge' | 'fill' | 'amnesia'>;

/** By the list itself: a reload brings a new one. */
const parsed = new WeakMap<readonly string[], ReadonlySet<string>>();

/** Throws `reject_policy` with the reason `not_allowed` or `amnesia`, or `not_found` for objects without a storage. */
export function requireFillable(missing: Missing, config: FillConfig): void {
  if (missing.kind === 'live' && !allowedOrigins(config).has(missing.origin)) throw notAllowed(config);
  if (missing.kind === 'object' && config.edge.storage_url === undefined)
    throw new RonError('not_found', 'no storage is configured');
  if (config.amnesia.enabled && config.amnesia.fill === 'refuse')
    throw new RonError('reject_policy', 'assets are not fetched in amnesia', { reason: 'amnesia' });
}

/** The origins that may be connected to now: none in offline mode. */
export function allowedOrigins({ edge, fill }: FillConfig): ReadonlySet<string> {
  return edge.mode === 'live' ? originsOf(fill.allow) : NONE;
}

const NONE: ReadonlySet<string> = new Set();

function originsOf(allow: readonly string[]): ReadonlySet<string> {
  const known = parsed.get(allow);
  if (known !== undefined) return known;
  const origins = new Set(allow.map(parseOrigin).filter((origin) => origin !== undefined));
  parsed.set(allow, origins);
  return origins;
}

function notAllowed({ edge }: FillConfig): RonError {
  const why = edge.mode === 'live' ? 'the origin is not in fill.allow' : 'edge.mode is offline';
  return new RonError('reject_policy', `the asset is not fetched: ${why}`, { reason: 'not_allowed' });
}
