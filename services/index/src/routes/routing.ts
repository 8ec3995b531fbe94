/**
 * `GET /routing/v1/providers/{cid}`: Delegated Routing V1 (https://specs.ipfs.tech/routing/http-routing-v1/).
 *
 * Contract: JSON, or ndjson in order of arrival. An object without providers is 200 with an empty list. A CID that is not raw
 * with BLAKE3 is 422. Filters of IPIP-484 are accepted and ignored, which the specification allows.
 */
import { isIP } from 'node:net';
import { json, stream, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { isRonError, RonError } from '@ron/kernel';
import { checkCid, PROVIDERS_LIMIT_MAX } from '@ron/proto';
import type { Ranked } from '../resolve/rank.ts';
import type { LookupRouteInit } from './lookup.ts';
import { acceptsNdjson, findArrivals, findProviders, NDJSON } from './providers.ts';
import type { Arrivals } from './provider-stream.ts';

/** The transport of `GET <url>/o/<address>`. */
const PROTOCOL = 'transport-ron-http';
const FILTER = Type.Optional(Type.String({ maxLength: 1024 }));
/** The specification requires `Vary: Accept`, because the media type depends on it. */
const HEADERS = { Vary: 'Accept', 'Cache-Control': 'public, max-age=5' } as const;

export const ROUTING = {
  params: Type.Object({ cid: Type.String({ maxLength: 512 }) }),
  query: Type.Object({ 'filter-addrs': FILTER, 'filter-protocols': FILTER }, { additionalProperties: false }),
} satisfies RouteSchema;

/** A record of the schema `peer`. */
export interface PeerRecord {
  readonly Schema: 'peer';
  readonly ID: string;
  readonly Addrs: readonly string[];
  readonly Protocols: readonly string[];
}

export async function routing(init: LookupRouteInit, context: RouteContext<typeof ROUTING>): Promise<RouteAnswer> {
  const result = checkCid(context.params.cid);
  if (!result.ok) throw new RonError('unprocessable', result.problem);
  const { address } = result;
  const isStream = acceptsNdjson(context.headers.accept);
  const filter = { limit: PROVIDERS_LIMIT_MAX, age_s_max: Infinity, gone: context.gone };
  try {
    if (isStream) return stream(200, NDJSON, lines(await findArrivals(init, context, address, filter)), HEADERS);
    const { providers } = await findProviders(init, context, address);
    return json(200, { Providers: providers.map(peerRecord) }, HEADERS);
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    return isStream ? stream(200, NDJSON, none(), HEADERS) : json(200, { Providers: [] }, HEADERS);
  }
}

function peerRecord({ id, url }: Ranked): PeerRecord {
  const addr = multiaddrOf(url);
  return { Schema: 'peer', ID: id, Addrs: addr === undefined ? [] : [addr], Protocols: [PROTOCOL] };
}

/** `http://192.0.2.1:7101` as `/ip4/192.0.2.1/tcp/7101/http`. Undefined for a URL with a path, which has no such form. */
export function multiaddrOf(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.pathname !== '/') return undefined;
  const isSecure = url.protocol === 'https:';
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const kind = { 4: 'ip4', 6: 'ip6' }[isIP(host)] ?? 'dns';
  const port = url.port === '' ? (isSecure ? '443' : '80') : url.port;
  return `/${kind}/${host}/tcp/${port}/${isSecure ? 'tls/http' : 'http'}`;
}

async function* lines({ first, rest }: Arrivals): AsyncGenerator<string, void, void> {
  if (first !== undefined) yield line(first);
  for await (const provider of rest) yield line(provider);
}

/** An empty body. */
async function* none(): AsyncGenerator<string, void, void> {}

const line = (provider: Ranked): string => `${JSON.stringify(peerRecord(provider))}\n`;
