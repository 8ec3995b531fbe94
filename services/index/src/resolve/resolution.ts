/** The result of a lookup, and its forms on the wire. */
import { hash } from 'node:crypto';
import type {
  Address,
  ProviderDto,
  ProvidersDto,
  ReceiptDto,
  ResolveDto,
  ResolvedNameDto,
  ResolveSource,
} from '@ron/proto';
import type { Ranked } from './rank.ts';

export interface Resolution {
  /** The target of the lookup. */
  readonly key: string;
  readonly address: Address;
  readonly size: number | null;
  readonly media_type: string | null;
  /** The best first. */
  readonly providers: readonly Ranked[];
  readonly name: ResolvedNameDto | undefined;
  readonly source: Exclude<ResolveSource, 'cache'>;
  readonly complete: boolean;
  /** Whether the DHT was asked even if the database sufficed. */
  readonly isFull: boolean;
  /** Unix milliseconds. */
  readonly born_ms: number;
  /** How long it may be cached. */
  readonly ttl_ms: number;
  /** Until when it may be served if it cannot be refreshed, in Unix milliseconds: a record of the name expires then. */
  readonly not_after_ms: number;
  readonly receipt: ReceiptDto;
}

export function providerDto({ id, url, proof, age_s, latency_ms }: Ranked): ProviderDto {
  return { id, url, proof, age_s, latency_ms: latency_ms === null ? null : Math.round(latency_ms) };
}

export function resolveDto(resolution: Resolution, source: ResolveSource, withReceipt = false): ResolveDto {
  const { key, address, size, media_type, providers, name, complete, receipt } = resolution;
  const best = providers[0];
  const url = best === undefined ? null : `${best.url.replace(/\/+$/, '')}/o/${address}`;
  return {
    key,
    address,
    manifest: { size, media_type, url },
    providers: providers.map(providerDto),
    ...(name !== undefined && { name }),
    source,
    complete,
    ...(withReceipt && { receipt }),
  };
}

export interface ProvidersFilter {
  readonly limit: number;
  /** The oldest announcement that is listed. */
  readonly age_s_max: number;
}

/** An announcement ages while the answer is cached. An unknown age satisfies no limit. */
export function isFreshEnough(provider: Ranked, resolution: Resolution, age_s_max: number, now_ms: number): boolean {
  return (provider.age_s ?? Infinity) + (now_ms - resolution.born_ms) / 1000 <= age_s_max;
}

export function providersDto(resolution: Resolution, filter: ProvidersFilter, now_ms: number): ProvidersDto {
  const { address, providers, complete } = resolution;
  const fresh = providers.filter((each) => isFreshEnough(each, resolution, filter.age_s_max, now_ms));
  return { address, providers: fresh.slice(0, filter.limit).map(providerDto), complete };
}

/** A weak tag: equal if the answers have the same meaning. Ages and latencies differ between equal answers. */
export function etagOf({ address, size, media_type, providers, name, complete }: Resolution): string {
  const meaning = [address, size, media_type, name, complete, providers.map(({ id, url, proof }) => [id, url, proof])];
  return `W/"${hash('sha256', JSON.stringify(meaning), 'base64url').slice(0, 22)}"`;
}
