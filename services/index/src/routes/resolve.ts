/** `GET /resolve/*`: from an address or a name to ranked providers. */
import { bytes, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { answerBytes } from '../resolve/cache/cached-answer.ts';
import { targetIn, waitFor, type LookupRouteInit } from './lookup.ts';

const FLAG = Type.Optional(Type.String({ pattern: '^[01]$' }));
/** `name:`, a label, `@` and a key. */
const TARGET_CHARS_MAX = 5 + 255 + 1 + 64;

export const RESOLVE = {
  params: Type.Object({ '*': Type.String({ maxLength: TARGET_CHARS_MAX }) }),
  query: Type.Object({ fresh: FLAG, receipt: FLAG }, { additionalProperties: false }),
} satisfies RouteSchema;

export async function resolve(init: LookupRouteInit, context: RouteContext<typeof RESOLVE>): Promise<RouteAnswer> {
  const key = context.params['*'];
  const target = targetIn(key);
  const isFresh = context.query.fresh === '1';
  const withReceipt = context.query.receipt === '1';
  const { cache, lookups } = init.resolving;
  // A receipt explains a lookup, so an answer from the cache has none.
  const cached = isFresh || withReceipt ? undefined : cache.get(key);
  if (cached?.refusal !== undefined) throw cached.refusal;
  if (cached?.resolution !== undefined) return bytes(answerBytes(cached.resolution, 'cache'));
  const wanted = { lane: '/resolve', target, mode: isFresh ? 'full' : 'usual' } as const;
  const resolution = await waitFor(init, context, wanted, (request) => lookups.find(request));
  return bytes(answerBytes(resolution, resolution.source, withReceipt));
}
