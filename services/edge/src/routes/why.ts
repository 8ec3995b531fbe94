/** The route that explains an asset to operators. */
import { json, route, Type, type JsonSchema, type Route } from '@ron/ingress';
import type { AuditProof, EdgeFreshnessDto, EdgeProvenanceDto, EdgeWhyDto } from '@ron/proto';
import { explainAsset, type ExplainInit } from '../why/explain-asset.ts';
import { namedAsset, PATH_CHARS_MAX } from '../why/named-asset.ts';
import { ADMIN } from './admin.ts';
import type { Fields } from './fields.ts';

const strict = { additionalProperties: false } as const;
const orNull = (schema: JsonSchema): JsonSchema => Type.Unsafe({ anyOf: [schema, { type: 'null' }] });
const text = orNull(Type.String());
const oneOf = (...values: readonly string[]): JsonSchema => Type.Unsafe({ enum: values });

const FreshnessSchema = Type.Object(
  {
    is_fresh: Type.Boolean(),
    age_s: Type.Number(),
    lifetime_s: Type.Number(),
    lifetime_from: oneOf('s-maxage', 'max-age', 'expires', 'heuristic', 'no-cache', 'none'),
    must_revalidate: Type.Boolean(),
    apparent_age_s: Type.Number(),
    age_header_s: Type.Number(),
    response_delay_s: Type.Number(),
    resident_time_s: Type.Number(),
    cache_control: text,
    expires: text,
    date: text,
    last_modified: text,
  } satisfies Fields<EdgeFreshnessDto>,
  strict,
);

const ProvenanceSchema = Type.Object(
  {
    host: Type.String(),
    dialled: Type.String(),
    certificate_key: Type.String(),
    etag: text,
    time_ms: Type.Number(),
    log_index: orNull(Type.Integer()),
  } satisfies Fields<EdgeProvenanceDto>,
  strict,
);

const ProofSchema = Type.Object(
  {
    log_index: Type.Integer(),
    tree_size: Type.Integer(),
    leaf_hash_b64: Type.String(),
    path_b64: Type.Array(Type.String()),
    entry_b64: Type.String(),
    checkpoint: Type.String(),
  } satisfies Fields<AuditProof>,
  strict,
);

const WhySchema = Type.Object(
  {
    key: Type.String(),
    tier: oneOf('pack', 'ram', 'cas', 'none'),
    state: oneOf('fresh', 'stale', 'negative', 'missing'),
    address: text,
    size: orNull(Type.Integer()),
    media_type: text,
    pack: orNull(Type.Object({ name: Type.String(), address: Type.String(), format: Type.String() }, strict)),
    freshness: orNull(FreshnessSchema),
    provenance: orNull(ProvenanceSchema),
    proof: Type.Optional(ProofSchema),
    proof_problem: text,
    fillable: oneOf('yes', 'not_allowed', 'amnesia', 'no_storage', 'not_fillable'),
  } satisfies Fields<EdgeWhyDto>,
  strict,
);

const Query = Type.Object(
  { path: Type.String({ minLength: 1, maxLength: PATH_CHARS_MAX, description: 'The path below /edge/assets/.' }) },
  strict,
);

export function whyRoute(init: ExplainInit): Route {
  return route({
    ...ADMIN,
    method: 'GET',
    path: '/edge/why',
    summary: 'Explains an asset: its tier, the calculation of its freshness, its provenance with a proof.',
    body: 'none',
    schema: { query: Query, response: { 200: WhySchema } },
    handler: async ({ query, deadline }) => {
      const target = namedAsset(query.path, init.current.value.fill.query);
      return json(200, await explainAsset(init, target, deadline.signal), { 'Cache-Control': 'no-store' });
    },
  });
}
