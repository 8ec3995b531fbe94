/** `GET /providers/{b3}`: the providers of an address, ranked, or as ndjson in order of arrival. */
import { json, stream, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { sched } from '@ron/kernel';
import { ADDRESS_PATTERN, PROVIDERS_LIMIT_MAX, type Address } from '@ron/proto';
import { providerDto, providersDto, type Resolution } from '../resolve/resolution.ts';
import { waitFor, type LookupRouteInit } from './lookup.ts';
import { arrivals, cachedArrivals, type Arrivals } from './provider-stream.ts';

export const NDJSON = 'application/x-ndjson';

export const PROVIDERS = {
  params: Type.Object({ address: Type.String({ pattern: ADDRESS_PATTERN }) }),
  query: Type.Object(
    {
      limit: Type.Optional(Type.String({ pattern: '^(?:[1-9]|[12][0-9]|3[0-2])$' })),
      min_freshness: Type.Optional(Type.String({ pattern: '^[0-9]{1,9}$' })),
    },
    { additionalProperties: false },
  ),
} satisfies RouteSchema;

export async function providers(init: LookupRouteInit, context: RouteContext<typeof PROVIDERS>): Promise<RouteAnswer> {
  const address = context.params.address as Address;
  const { limit, min_freshness } = context.query;
  const filter = {
    limit: limit === undefined ? PROVIDERS_LIMIT_MAX : Number(limit),
    age_s_max: min_freshness === undefined ? Infinity : Number(min_freshness),
    gone: context.gone,
  };
  if (acceptsNdjson(context.headers.accept)) {
    const found = await findArrivals(init, context, address, filter);
    return stream(200, NDJSON, lines(found), { 'Cache-Control': 'no-store' });
  }
  const resolution = await findProviders(init, context, address);
  return json(200, providersDto(resolution, filter, sched.wall_ms()), { 'Cache-Control': 'public, max-age=5' });
}

/** The whole answer, from the cache or by a lookup in which the DHT is always asked. */
export async function findProviders(
  init: LookupRouteInit,
  context: Parameters<typeof waitFor>[1],
  address: Address,
): Promise<Resolution> {
  const { lookups } = init.resolving;
  return cached(init, address) ?? waitFor(init, context, wantedFor(address), (request) => lookups.find(request));
}

/** The providers in order of arrival. Resolves with the first one. */
export async function findArrivals(
  init: LookupRouteInit,
  context: Parameters<typeof waitFor>[1],
  address: Address,
  filter: Parameters<typeof cachedArrivals>[1],
): Promise<Arrivals> {
  const known = cached(init, address);
  if (known !== undefined) return cachedArrivals(known, filter);
  return waitFor(init, context, wantedFor(address), (request) => arrivals(init.resolving, request, filter));
}

const wantedFor = (address: Address) =>
  ({ lane: '/providers', target: { kind: 'address', address }, mode: 'full' }) as const;

/** Throws a cached refusal. An answer for which the DHT was not asked does not list all providers. */
function cached({ resolving }: LookupRouteInit, address: Address): Resolution | undefined {
  const answer = resolving.cache.get(address);
  if (answer?.refusal !== undefined) throw answer.refusal;
  return answer?.resolution?.isFull === true || resolving.isStandalone ? answer?.resolution : undefined;
}

export function acceptsNdjson(accept: string | undefined): boolean {
  return accept !== undefined && accept.includes(NDJSON);
}

async function* lines({ first, rest }: Arrivals): AsyncGenerator<string, void, void> {
  if (first !== undefined) yield line(providerDto(first));
  for (;;) {
    const next = await rest.next();
    if (next.done === true) return yield line({ complete: next.value });
    yield line(providerDto(next.value));
  }
}

const line = (value: unknown): string => `${JSON.stringify(value)}\n`;
