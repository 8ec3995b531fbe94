/** Schemas of the answers of lookups. `Fields` keeps each of them equal to the contract in proto. */
import { Type, type JsonSchema } from '@ron/ingress';
import {
  ADDRESS_PATTERN,
  type ProviderDto,
  type ProvidersDto,
  type ReceiptDto,
  type ReceiptPeerDto,
  type ResolveDto,
  type ResolvedNameDto,
} from '@ron/proto';

/** Exactly one schema for each field of `T`. */
type Fields<T> = Record<keyof T, JsonSchema>;

const strict = { additionalProperties: false } as const;
const Count = Type.Integer();
const orNull = (type: 'integer' | 'string'): JsonSchema => Type.Unsafe({ anyOf: [{ type }, { type: 'null' }] });
const AddressSchema = Type.String({ pattern: ADDRESS_PATTERN });

const Provider = Type.Object(
  {
    id: Type.String(),
    url: Type.String(),
    proof: Type.Unsafe({ enum: ['proven', 'unproven'] }),
    age_s: orNull('integer'),
    latency_ms: orNull('integer'),
  } satisfies Fields<ProviderDto>,
  strict,
);

export const ProvidersSchema = Type.Object(
  { address: AddressSchema, providers: Type.Array(Provider), complete: Type.Boolean() } satisfies Fields<ProvidersDto>,
  strict,
);

const Name = Type.Object(
  {
    key: Type.String(),
    label: Type.String(),
    seq: Count,
    not_after: Count,
    conflict: Type.Boolean(),
  } satisfies Fields<ResolvedNameDto>,
  strict,
);

const ReceiptPeer = Type.Object(
  {
    peer: Type.String(),
    wave: Type.Unsafe({ enum: ['alpha', 'beta'] }),
    started_ms: Type.Number(),
    took_ms: Type.Number(),
    outcome: Type.Unsafe({ enum: ['answered', 'failed', 'timeout', 'canceled', 'breaker_open'] }),
    tries: Count,
    providers: Count,
    closer: Count,
  } satisfies Fields<ReceiptPeerDto>,
  strict,
);

const Receipt = Type.Object(
  {
    started_at: Type.String(),
    took_ms: Type.Number(),
    budget_ms: Type.Number(),
    source: Type.Unsafe({ enum: ['cache', 'db', 'dht'] }),
    peers: Type.Array(ReceiptPeer),
    hedges: Type.Object({ started: Count, won: Count, refused: Count }, strict),
    breakers: Type.Array(Type.Object({ target: Type.String(), state: Type.String() }, strict)),
    ranking: Type.Array(
      Type.Object(
        {
          id: Type.String(),
          rank: Count,
          proof: Type.String(),
          age_s: orNull('integer'),
          latency_ms: Type.Unsafe({ anyOf: [{ type: 'number' }, { type: 'null' }] }),
          breaker: Type.String(),
        } satisfies Fields<ReceiptDto['ranking'][number]>,
        strict,
      ),
    ),
  } satisfies Fields<ReceiptDto>,
  strict,
);

export const ResolveSchema = Type.Object(
  {
    key: Type.String(),
    address: AddressSchema,
    manifest: Type.Object(
      {
        size: orNull('integer'),
        media_type: orNull('string'),
        url: orNull('string'),
      } satisfies Fields<ResolveDto['manifest']>,
      strict,
    ),
    providers: Type.Array(Provider),
    name: Type.Optional(Name),
    source: Type.Unsafe({ enum: ['cache', 'db', 'dht'] }),
    complete: Type.Boolean(),
    receipt: Type.Optional(Receipt),
  } satisfies Fields<ResolveDto>,
  strict,
);

/** Delegated Routing V1. */
export const RoutingSchema = Type.Object(
  {
    Providers: Type.Array(
      Type.Object(
        {
          Schema: Type.Literal('peer'),
          ID: Type.String(),
          Addrs: Type.Array(Type.String()),
          Protocols: Type.Array(Type.String()),
        },
        strict,
      ),
    ),
  },
  strict,
);
