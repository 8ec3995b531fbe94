/** `GET /admin/dht`: the state of this node in the DHT, for operators. */
import { json, Type, type JsonSchema, type RouteAnswer } from '@ron/ingress';
import { BREAKERS_LISTED_MAX, type DhtStatusDto } from '@ron/proto';

export interface DhtStatusInit {
  readonly mode: DhtStatusDto['mode'];
  readonly peer_id: string;
  readonly bootstrap: readonly string[];
  readonly storage_url: string | undefined;
  /** The network, if this node joins one. */
  readonly peers:
    | { readonly listening: readonly string[]; readonly known: number; readonly problem: string | undefined }
    | undefined;
  /** Breakers that are not closed. */
  readonly breakers: () => Iterable<DhtStatusDto['breakers'][number]>;
}

const Breaker = Type.Object(
  {
    target: Type.String(),
    state: Type.Unsafe<'open' | 'half_open'>({ type: 'string', enum: ['open', 'half_open'] }),
  },
  { additionalProperties: false },
);
const Text = Type.Unsafe<string | null>({ anyOf: [{ type: 'string' }, { type: 'null' }] });

export const DhtStatusSchema = Type.Object(
  {
    mode: Type.Unsafe<DhtStatusDto['mode']>({ type: 'string', enum: ['standalone', 'join'] }),
    peer_id: Type.String(),
    listening: Type.Array(Type.String()),
    known: Type.Integer({ minimum: 0 }),
    bootstrap: Type.Array(Type.String()),
    storage_url: Text,
    problem: Text,
    breakers: Type.Array(Breaker, { maxItems: BREAKERS_LISTED_MAX }),
  } satisfies Record<keyof DhtStatusDto, JsonSchema>,
  { additionalProperties: false },
);

export function dhtStatus(init: DhtStatusInit): RouteAnswer {
  const { mode, peer_id, bootstrap, storage_url = null, peers } = init;
  const breakers = Iterator.from(init.breakers()).take(BREAKERS_LISTED_MAX).toArray();
  const { listening = [], known = 0, problem = null } = peers ?? {};
  return json(200, {
    mode,
    peer_id,
    listening,
    known,
    bootstrap,
    storage_url,
    problem,
    breakers,
  } satisfies DhtStatusDto);
}
