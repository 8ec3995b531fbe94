/** Keys: made, imported, listed, rotated, retired. Public parts only; no route gives out a private key. */
import type { Alg, PublicPart } from '@ron/custody';
import { json, route, type Route, type RouteContext } from '@ron/ingress';
import { Type } from 'typebox';
import type { Auditor } from '../audit/auditor.ts';
import type { AuditOp } from '../audit/event.ts';
import type { KeyRegistry } from '../keys/key-registry.ts';
import { headName, type KeyService } from '../keys/key-service.ts';
import { headOf, type KeyRecord, type KeyVersion } from '../keys/key-record.ts';
import { formatKid, nameOf, PURPOSE_PATTERN, RAW_PURPOSE, TENANT_PATTERN, tenantOf } from '../keys/kid.ts';
import {
  AlgName,
  allowed,
  base64,
  BASE,
  callerOf,
  KidParam,
  KidText,
  Mode,
  NO_STORE,
  OpId,
  Public,
  strict,
} from './schemas.ts';

export interface KeyRoutesInit {
  readonly registry: KeyRegistry;
  readonly keys: KeyService;
  readonly auditor: Pick<Auditor, 'recordRefusal'>;
  /** Of the backend that holds the keys. */
  readonly attestation_class: string;
  readonly attestation: () => unknown;
}

const Tenant = Type.String({ pattern: TENANT_PATTERN });
const Version = Type.Integer({ minimum: 1, maximum: 999_999 });
const CreateBody = Type.Object(
  {
    tenant: Tenant,
    purpose: Type.String({ pattern: PURPOSE_PATTERN }),
    alg: AlgName,
    op_id: Type.Optional(OpId),
    policy: Type.Optional(
      Type.Object({ verify_mode: Type.Optional(Mode), min_version: Type.Optional(Type.Literal(1)) }, strict),
    ),
  },
  strict,
);
const ImportBody = Type.Object(
  { tenant: Tenant, purpose: Type.Literal(RAW_PURPOSE), alg: AlgName, pubkey_b64: base64(4096) },
  strict,
);
const RotateBody = Type.Union([Type.Object({ op_id: Type.Optional(OpId) }, strict), Type.Null()]);
const Made = Type.Object({ kid: Type.String(), alg: Type.String(), public: Public }, strict);
const Shown = Type.Object(
  {
    kid: Type.String(),
    alg: Type.String(),
    versions: Type.Array(Type.String()),
    public: Public,
    attestation_class: Type.String(),
    verify_mode: Mode,
    min_version: Type.Integer(),
    deleting: Type.Optional(Type.Array(Type.Object({ version: Type.String(), deletable_ms: Type.Integer() }, strict))),
  },
  strict,
);
const ListQuery = Type.Object(
  {
    tenant: Type.Optional(Tenant),
    after: Type.Optional(KidText),
    limit: Type.Optional(Type.String({ pattern: '^(?:[1-9][0-9]{0,2}|1000)$' })),
  },
  strict,
);
const LIST_DEFAULT = 100;
const Deletion = Type.Object(
  { kid: Type.String(), state: Type.String(), deletable_ms: Type.Optional(Type.Integer()) },
  strict,
);

const common = { lane: 'inline', body: 'none', deadline: 'verify', scope: 'kms:read' } as const;
const change = { lane: 'inline', deadline: 'sign', scope: 'kms:rotate', method: 'POST', encoded_slash: true } as const;

export function keyRoutes(init: KeyRoutesInit): Route[] {
  return [...makeRoutes(init), ...readRoutes(init), ...retireRoutes(init)];
}

function makeRoutes({ registry, keys, auditor }: KeyRoutesInit): Route[] {
  return [
    route({
      method: 'POST',
      path: `${BASE}/keys`,
      summary: 'Makes a key. Its private part stays in the backend for ever.',
      scope: 'kms:create',
      lane: 'inline',
      deadline: 'sign',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: { body: CreateBody, response: { 201: Made } },
      handler: async (context) => {
        const { tenant, purpose, alg, op_id, policy } = context.body;
        allowed(auditor, context, { tenant }, () => [{ op: 'create', kid: `${tenant}/${purpose}/${alg}/`, op_id }]);
        const request = { tenant, purpose, alg, verify_mode: policy?.verify_mode };
        const kid = await keys.create(request, op_id, callerOf(context));
        return json(201, made(registry, kid), NO_STORE);
      },
    }),
    route({
      method: 'POST',
      path: `${BASE}/keys/import`,
      summary: 'Keeps a public key of somebody else, to verify with.',
      scope: 'kms:create',
      lane: 'inline',
      deadline: 'sign',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: { body: ImportBody, response: { 201: Made } },
      handler: async (context) => {
        const { tenant, alg, pubkey_b64 } = context.body;
        allowed(auditor, context, { tenant }, () => [{ op: 'import', kid: `${tenant}/${RAW_PURPOSE}/${alg}/` }]);
        const record = await keys.import({ tenant, alg, pubkey_b64 }, callerOf(context));
        return json(201, made(registry, headName(record)), NO_STORE);
      },
    }),
    route({
      ...change,
      path: `${BASE}/keys/:kid/rotate`,
      summary: 'Makes a new version, which signs from now on. Older ones verify down to min_version.',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: {
        params: KidParam,
        body: RotateBody,
        response: {
          200: Type.Object({ kid: Type.String(), previous: Type.String(), alg: Type.String(), public: Public }, strict),
        },
      },
      handler: async (context) => {
        const op_id = context.body?.op_id;
        byKid(auditor, context, 'rotate', op_id);
        const kid = await keys.rotate(context.params.kid, op_id, callerOf(context));
        const { record, version } = registry.index.find(kid);
        const previous = formatKid(record.name, version.version - 1);
        return json(200, { ...made(registry, kid), previous }, NO_STORE);
      },
    }),
  ];
}

function readRoutes({ registry, attestation_class, attestation }: KeyRoutesInit): Route[] {
  return [
    route({
      ...common,
      method: 'GET',
      path: `${BASE}/keys`,
      summary: 'Keys in the order of their names; `after` goes on where a list ended.',
      facts: ({ query }) => ({ tenant: query['tenant'] }),
      schema: {
        query: ListQuery,
        response: { 200: Type.Object({ keys: Type.Array(Shown), next: Type.Optional(Type.String()) }, strict) },
      },
      handler: ({ query }) => {
        const limit = Number(query.limit ?? LIST_DEFAULT);
        const after = query.after === undefined ? '' : nameOf(query.after);
        const found = registry.index
          .sorted()
          .filter(({ tenant, name }) => (query.tenant === undefined || tenant === query.tenant) && name > after);
        const page = found.slice(0, limit);
        const next = found.length > limit ? page.at(-1)?.name : undefined;
        const shownKeys = page.map((record) => shown(record, headOf(record), attestation_class));
        return json(200, { keys: shownKeys, ...(next === undefined ? {} : { next }) }, NO_STORE);
      },
    }),
    route({
      ...common,
      method: 'GET',
      path: `${BASE}/keys/:kid`,
      encoded_slash: true,
      summary: 'A key: its versions and the public part of the one that is named, or of the current one.',
      facts: ({ params }) => ({ tenant: tenantOf(params['kid'] ?? '') }),
      schema: { params: KidParam, response: { 200: Shown } },
      handler: ({ params }) => {
        const { record, version } = registry.index.find(params.kid);
        return json(200, shown(record, version, attestation_class), NO_STORE);
      },
    }),
    route({
      ...common,
      method: 'GET',
      path: `${BASE}/attestation`,
      summary: 'What the backend attests about itself, where it does.',
      schema: {
        response: { 200: Type.Object({ attestation_class: Type.String(), attestation: Type.Unsafe({}) }, strict) },
      },
      handler: () => json(200, { attestation_class, attestation: attestation() ?? null }, NO_STORE),
    }),
  ];
}

function retireRoutes({ registry, keys, auditor, attestation_class }: KeyRoutesInit): Route[] {
  return [
    route({
      ...change,
      path: `${BASE}/keys/:kid/policy`,
      summary: 'Raises min_version: older versions no longer verify.',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: { params: KidParam, body: Type.Object({ min_version: Version }, strict), response: { 200: Shown } },
      handler: async (context) => {
        byKid(auditor, context, 'policy');
        const record = await keys.setMinVersion(context.params.kid, context.body.min_version, callerOf(context));
        return json(200, shown(record, headOf(record), attestation_class), NO_STORE);
      },
    }),
    route({
      ...change,
      path: `${BASE}/keys/:kid/delete`,
      summary: 'Deletes a version that is not current, in two steps: the second comes after the waiting period.',
      body: 'none',
      facts_later: ['tenant'],
      schema: { params: KidParam, response: { 200: Deletion, 202: Deletion } },
      handler: async (context) => {
        byKid(auditor, context, 'delete');
        const version = await keys.delete(context.params.kid, callerOf(context));
        return json(version.deleted === true ? 200 : 202, deletion(registry, context.params.kid, version), NO_STORE);
      },
    }),
    route({
      ...change,
      path: `${BASE}/keys/:kid/restore`,
      summary: 'Takes the first step of a deletion back.',
      body: 'none',
      facts_later: ['tenant'],
      schema: { params: KidParam, response: { 200: Deletion } },
      handler: async (context) => {
        byKid(auditor, context, 'restore');
        const version = await keys.restore(context.params.kid, callerOf(context));
        return json(200, deletion(registry, context.params.kid, version), NO_STORE);
      },
    }),
  ];
}

/** A capability may be limited to one tenant: the one that the kid in the path names. */
function byKid(
  auditor: KeyRoutesInit['auditor'],
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'> & { readonly params: { readonly kid: string } },
  op: AuditOp,
  op_id?: string,
): void {
  const { kid } = context.params;
  allowed(auditor, context, { tenant: tenantOf(kid) }, () => [{ op, kid, op_id }]);
}

function made(registry: KeyRegistry, kid: string): { kid: string; alg: Alg; public: PublicView } {
  const { record, version } = registry.index.find(kid);
  return { kid, alg: record.alg, public: publicOf(record.alg, version.public) };
}

interface PublicView {
  readonly alg: Alg;
  readonly pubkey_b64?: string;
  readonly parts?: readonly PublicPart[];
}

function publicOf(alg: Alg, parts: readonly PublicPart[]): PublicView {
  if (parts.length > 1) return { alg, parts };
  const [only] = parts;
  return only === undefined ? { alg } : { alg, pubkey_b64: only.pubkey_b64 };
}

function shown(record: KeyRecord, version: KeyVersion, attestation_class: string): Record<string, unknown> {
  const { name, alg, versions, imported, verify_mode, min_version } = record;
  const deleting = versions.filter((each) => each.deletable_ms !== undefined && each.deleted !== true);
  return {
    kid: formatKid(name, version.version),
    alg,
    versions: versions.filter((each) => each.deleted !== true).map((each) => `#v${each.version}`),
    public: publicOf(alg, version.public),
    attestation_class: imported ? 'imported' : attestation_class,
    verify_mode,
    min_version,
    ...(deleting.length > 0 && {
      deleting: deleting.map((each) => ({ version: `#v${each.version}`, deletable_ms: each.deletable_ms })),
    }),
  };
}

function deletion(registry: KeyRegistry, kid: string, version: KeyVersion): Record<string, unknown> {
  const { deletable_ms, deleted } = version;
  const state = deleted === true ? 'deleted' : deletable_ms === undefined ? 'kept' : 'pending';
  const name = formatKid(registry.index.record(kid).name, version.version);
  return { kid: name, state, ...(deletable_ms !== undefined && { deletable_ms }) };
}
