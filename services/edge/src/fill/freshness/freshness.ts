/**
 * The freshness of an asset in a shared cache (RFC 9111, 4.2), and for how long it may be served stale.
 *
 * Contract: a pure function of the fields, the configuration and the time. `s-maxage` before `max-age` before `Expires`; without
 * them a tenth of the time since `Last-Modified`, at most `HEURISTIC_MAX_S`. `no-cache` means a lifetime of 0.
 * `must-revalidate`, `proxy-revalidate`, `s-maxage` and `no-cache` forbid stale answers; otherwise the configuration
 * permits them, and a directive of the origin can shorten that. Assets without fields are objects of storage: always fresh.
 * If the clock stands before the arrival of the answer, it was set back and the age is unknown: the asset is not fresh.
 *
 *   const { isFresh, age_s } = freshnessOf(meta, config.fill, sched.wall_ms());
 */
import { parseHttpDate } from '@ron/ingress';
import type { AssetMeta, FreshnessFields } from '../../cache/cached-asset.ts';
import { parseCacheControl, type CacheControl } from './cache-control.ts';

const HEURISTIC_SHARE = 0.1;
const HEURISTIC_MAX_S = 24 * 60 * 60;
/** Clocks are adjusted by small steps all the time. */
const CLOCK_STEP_MS = 1000;

/** The keys of the configuration that count. */
export interface StaleRules {
  readonly stale_while_revalidate: number;
  readonly stale_if_error: number;
}

/** The field that the lifetime was taken from. `object`: never stale. `none`: no field states one. */
export type LifetimeSource = 'object' | 's-maxage' | 'max-age' | 'expires' | 'heuristic' | 'no-cache' | 'none';

export interface Freshness {
  readonly source: LifetimeSource;
  /** How long the answer is fresh, from its creation at the origin. Infinity for objects. */
  readonly lifetime_s: number;
  /** The value of `Age`: `max(apparent_ms, Age of the origin + delay_ms) + resident_ms`. */
  readonly age_s: number;
  /** The terms of the age (RFC 9111, 4.2.3). */
  readonly apparent_ms: number;
  readonly delay_ms: number;
  readonly resident_ms: number;
  readonly isFresh: boolean;
  /** How long it stays fresh; 0 if it is stale. */
  readonly fresh_ms: number;
  /** Before this time (Unix ms) it is not fresh: the clock was set back since the answer arrived. */
  readonly fresh_from_ms: number;
  /** How long, from now, it may be served while a revalidation runs, and while the origin fails. Both include `fresh_ms`. */
  readonly while_revalidate_ms: number;
  readonly if_error_ms: number;
  /** The origin forbids stale answers. In offline mode too: RFC 9111, 5.2.2.2 requires 504 then. */
  readonly mustRevalidate: boolean;
  /** The clock was set back since the answer arrived. */
  readonly isClockBack: boolean;
}

const OBJECT: Freshness = {
  source: 'object',
  lifetime_s: Infinity,
  age_s: 0,
  apparent_ms: 0,
  delay_ms: 0,
  resident_ms: 0,
  isFresh: true,
  fresh_ms: Infinity,
  fresh_from_ms: -Infinity,
  while_revalidate_ms: Infinity,
  if_error_ms: Infinity,
  mustRevalidate: false,
  isClockBack: false,
};

/** Whether a shared cache may keep the answer. If not, it is for the client that led the fill only. */
export function isStorable(cache_control: string | undefined): boolean {
  const { flags } = parseCacheControl(cache_control);
  return !flags.has('no-store') && !flags.has('private');
}

export function freshnessOf(meta: Pick<AssetMeta, 'freshness'>, rules: StaleRules, now_ms: number): Freshness {
  const { freshness: fields } = meta;
  if (fields === undefined) return OBJECT;
  const control = parseCacheControl(fields.cache_control);
  const { source, lifetime_s } = lifetimeOf(fields, control);
  const fresh_from_ms = fields.response_ms - CLOCK_STEP_MS;
  const isClockBack = now_ms < fresh_from_ms;
  const { apparent_ms, delay_ms } = initialAge(fields);
  const resident_ms = Math.max(0, now_ms - fields.response_ms);
  const age_ms = Math.max(apparent_ms, fields.age_s * 1000 + delay_ms) + resident_ms;
  const rest_ms = isClockBack ? 0 : lifetime_s * 1000 - age_ms;
  const { flags, times } = control;
  const mustRevalidate =
    flags.has('must-revalidate') || flags.has('proxy-revalidate') || flags.has('no-cache') || times.has('s-maxage');
  const staleWithin = (allowed_ms: number, stated_s: number | undefined): number => {
    if (mustRevalidate) return Math.max(0, rest_ms);
    return Math.max(0, rest_ms + Math.min(allowed_ms, (stated_s ?? Infinity) * 1000));
  };
  return {
    source,
    lifetime_s,
    age_s: Math.floor(age_ms / 1000),
    apparent_ms,
    delay_ms,
    resident_ms,
    isFresh: rest_ms > 0,
    fresh_ms: Math.max(0, rest_ms),
    fresh_from_ms,
    while_revalidate_ms: staleWithin(rules.stale_while_revalidate, times.get('stale-while-revalidate')),
    if_error_ms: staleWithin(rules.stale_if_error, times.get('stale-if-error')),
    mustRevalidate,
    isClockBack,
  };
}

function lifetimeOf(
  fields: FreshnessFields,
  { flags, times }: CacheControl,
): { readonly source: LifetimeSource; readonly lifetime_s: number } {
  if (flags.has('no-cache')) return { source: 'no-cache', lifetime_s: 0 };
  for (const source of ['s-maxage', 'max-age'] as const) {
    const lifetime_s = times.get(source);
    if (lifetime_s !== undefined) return { source, lifetime_s };
  }
  const date_ms = dateOf(fields);
  if (fields.expires !== undefined) {
    // An Expires that is not a date has passed (RFC 9111, 5.3).
    const expires_ms = parseHttpDate(fields.expires) ?? date_ms;
    return { source: 'expires', lifetime_s: Math.max(0, (expires_ms - date_ms) / 1000) };
  }
  const modified_ms = fields.last_modified === undefined ? undefined : parseHttpDate(fields.last_modified);
  if (modified_ms === undefined) return { source: 'none', lifetime_s: 0 };
  const guess_s = Math.floor((Math.max(0, date_ms - modified_ms) / 1000) * HEURISTIC_SHARE);
  return { source: 'heuristic', lifetime_s: Math.min(guess_s, HEURISTIC_MAX_S) };
}

/** RFC 9111, 4.2.3: the terms of the age when the answer arrived. */
function initialAge(fields: FreshnessFields): { readonly apparent_ms: number; readonly delay_ms: number } {
  // `Date` has no fraction of a second, so an answer of this second has no apparent age.
  const apparent_ms = Math.max(0, Math.floor(fields.response_ms / 1000) * 1000 - dateOf(fields));
  return { apparent_ms, delay_ms: Math.max(0, fields.response_ms - fields.request_ms) };
}

/** The time at which the origin made the answer; without a valid `Date`, that of its arrival. */
function dateOf({ date, response_ms }: FreshnessFields): number {
  return (date === undefined ? undefined : parseHttpDate(date)) ?? response_ms;
}
