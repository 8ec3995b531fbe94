/** Handlers of the trust list: which key holds the bare labels below a prefix. */
import { empty, json, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { isLabelPrefix, LABEL_BYTES_MAX, type TrustListDto } from '@ron/proto';
import type { Names } from '../publish/names.ts';
import { callerOf } from './admin.ts';

export interface TrustRoutesInit {
  readonly names: Pick<Names, 'removeTrust' | 'setTrust' | 'trusted'>;
}

const strict = { additionalProperties: false } as const;
const NO_STORE = { 'Cache-Control': 'no-store' } as const;
const PrefixParam = Type.Object({ '*': Type.String({ maxLength: LABEL_BYTES_MAX }) }, strict);
const Trust = Type.Object({ prefix: Type.String(), key: Type.String() }, strict);

export const LIST_TRUST = {
  response: { 200: Type.Object({ trust: Type.Array(Trust) }, strict) },
} as const satisfies RouteSchema;

export const PUT_TRUST = {
  params: PrefixParam,
  body: Type.Object(
    { key: Type.String({ pattern: '^[0-9a-f]{64}$', description: 'an Ed25519 public key in lower-case hex' }) },
    strict,
  ),
} as const satisfies RouteSchema;

export const REMOVE_TRUST = { params: PrefixParam } as const satisfies RouteSchema;

export function listTrust({ names }: TrustRoutesInit): RouteAnswer {
  return json(200, { trust: names.trusted } satisfies TrustListDto, NO_STORE);
}

export async function putTrust(
  { names }: TrustRoutesInit,
  { params, body, grant, deadline }: RouteContext<typeof PUT_TRUST>,
): Promise<RouteAnswer> {
  await names.setTrust({ prefix: prefixIn(params['*']), key: body.key }, callerOf(grant), deadline.signal);
  return empty(204);
}

export async function removeTrust(
  { names }: TrustRoutesInit,
  { params, grant, deadline }: RouteContext<typeof REMOVE_TRUST>,
): Promise<RouteAnswer> {
  await names.removeTrust(prefixIn(params['*']), callerOf(grant), deadline.signal);
  return empty(204);
}

function prefixIn(text: string): string {
  if (isLabelPrefix(text)) return text;
  throw new RonError('bad_request', 'a prefix is empty or consists of whole segments of a label');
}
