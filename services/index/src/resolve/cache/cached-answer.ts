/** One entry of the cache: the resolution of a target with its prepared HTTP answer, or the refusal that a lookup ended with. */
import { CopiedBytes, FastEntry } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { etagOf, resolveDto, type Resolution } from '../resolution.ts';
import type { Stamp } from './versions.ts';

/** Sent with every resolution. `Age` is counted from the lookup. */
const HEADERS = { 'Cache-Control': 'public, max-age=5' } as const;
/** An answer with a receipt explains one lookup. */
const NO_STORE = { 'Cache-Control': 'no-store' } as const;
const JSON_TYPE = 'application/json; charset=utf-8';
/** The memory of an entry besides its text: the resolution, prepared headers and map entries. */
const OVERHEAD_BYTES = 1536;
const PROVIDER_BYTES = 256;

export class CachedAnswer {
  /** Undefined: the lookup found nothing, for `refusal`. */
  readonly resolution: Resolution | undefined;
  readonly refusal: RonError | undefined;
  readonly ttl_ms: number;
  readonly stamp: Stamp;
  #fast: FastEntry | undefined;

  constructor(outcome: Resolution | RonError, ttl_ms: number, stamp: Stamp) {
    this.resolution = outcome instanceof RonError ? undefined : outcome;
    this.refusal = outcome instanceof RonError ? outcome : undefined;
    this.ttl_ms = ttl_ms;
    this.stamp = stamp;
  }

  get bytes(): number {
    return OVERHEAD_BYTES + (this.resolution?.providers.length ?? 0) * PROVIDER_BYTES;
  }

  /** The prepared answer; undefined for a refusal. Built by the first request. */
  get fast(): FastEntry | undefined {
    if (this.resolution === undefined) return undefined;
    this.#fast ??= new FastEntry(answerBytes(this.resolution, 'cache'));
    return this.#fast;
  }
}

/** A resolution as the body of an answer, with entity tag and `Age`. */
export function answerBytes(resolution: Resolution, source: 'cache' | 'db' | 'dht', withReceipt = false): CopiedBytes {
  const body = Buffer.from(JSON.stringify(resolveDto(resolution, source, withReceipt)));
  return new CopiedBytes(body, {
    etag: etagOf(resolution),
    media_type: JSON_TYPE,
    headers: withReceipt ? NO_STORE : HEADERS,
    born_ms: resolution.born_ms,
  });
}
