/** Handlers for the life of a key. They return public parts only; no handler returns a private key. */
import type { Alg, PublicPart } from '@ron/custody';
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import type { Auditor } from '../audit/auditor.ts';
import type { AuditOp } from '../audit/event.ts';
import { headOf, type KeyRecord, type KeyVersion } from '../keys/key-record.ts';
import type { KeyRegistry } from '../keys/key-registry.ts';
import { headName, type KeyService } from '../keys/key-service.ts';
import { formatKid, nameOf, RAW_PURPOSE, tenantOf } from '../keys/kid.ts';
import { callerOf, requireAllowed } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface KeyRoutesInit {
  readonly registry: KeyRegistry;
  readonly keys: KeyService;
  readonly auditor: Pick<Auditor, 'recordRefusal'>;
  /** Of the backend that holds the keys. */
  readonly attestation_class: string;
  readonly attestation: () => unknown;
}

const LIST_DEFAULT = 100;

export async function createKey(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.CREATE>,
): Promise<RouteAnswer> {
  const { tenant, purpose, alg, op_id, policy } = context.body;
  requireAllowed(auditor, context, { tenant }, () => [{ op: 'create', kid: `${tenant}/${purpose}/${alg}/`, op_id }]);
  const request = { tenant, purpose, alg, verify_mode: policy?.verify_mode };
  const kid = await keys.create(request, op_id, callerOf(context));
  return json(201, createdView(registry, kid), NO_STORE);
}

export async function importKey(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.IMPORT>,
): Promise<RouteAnswer> {
  const { tenant, alg, pubkey_b64 } = context.body;
  requireAllowed(auditor, context, { tenant }, () => [{ op: 'import', kid: `${tenant}/${RAW_PURPOSE}/${alg}/` }]);
  const record = await keys.import({ tenant, alg, pubkey_b64 }, callerOf(context));
  return json(201, createdView(registry, headName(record)), NO_STORE);
}

export function listKeys(
  { registry, attestation_class }: KeyRoutesInit,
  { query }: RouteContext<typeof schemas.LIST>,
): RouteAnswer {
  const limit = Number(query.limit ?? LIST_DEFAULT);
  const after = query.after === undefined ? '' : nameOf(query.after);
  const prefix = query.tenant === undefined ? '' : `${query.tenant}/`;
  const found = registry.page({ prefix, after, limit: limit + 1 });
  const page = found.slice(0, limit);
  const next = found.length > limit ? page.at(-1)?.name : undefined;
  const keys = page.map((record) => keyView(record, headOf(record), attestation_class));
  return json(200, { keys, ...(next === undefined ? {} : { next }) }, NO_STORE);
}

export function readKey(
  { registry, attestation_class }: KeyRoutesInit,
  { params }: RouteContext<typeof schemas.READ>,
): RouteAnswer {
  const { record, version } = registry.index.find(params.kid);
  return json(200, keyView(record, version, attestation_class), NO_STORE);
}

export function readAttestation({ attestation_class, attestation }: KeyRoutesInit): RouteAnswer {
  return json(200, { attestation_class, attestation: attestation() ?? null }, NO_STORE);
}

export async function rotateKey(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.ROTATE>,
): Promise<RouteAnswer> {
  const op_id = context.body?.op_id;
  requireAllowedKid(auditor, context, 'rotate', op_id);
  const kid = await keys.rotate(context.params.kid, op_id, callerOf(context));
  const { record, version } = registry.index.find(kid);
  const previous = formatKid(record.name, version.version - 1);
  return json(200, { ...createdView(registry, kid), previous }, NO_STORE);
}

export async function setPolicy(
  { keys, auditor, attestation_class }: KeyRoutesInit,
  context: RouteContext<typeof schemas.POLICY>,
): Promise<RouteAnswer> {
  requireAllowedKid(auditor, context, 'policy');
  const record = await keys.setMinVersion(context.params.kid, context.body.min_version, callerOf(context));
  return json(200, keyView(record, headOf(record), attestation_class), NO_STORE);
}

export async function deleteVersion(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.DELETE>,
): Promise<RouteAnswer> {
  requireAllowedKid(auditor, context, 'delete');
  const version = await keys.delete(context.params.kid, callerOf(context));
  const status = version.deleted === true ? 200 : 202;
  return json(status, deletionView(registry, context.params.kid, version), NO_STORE);
}

export async function restoreVersion(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.RESTORE>,
): Promise<RouteAnswer> {
  requireAllowedKid(auditor, context, 'restore');
  const version = await keys.restore(context.params.kid, callerOf(context));
  return json(200, deletionView(registry, context.params.kid, version), NO_STORE);
}

/** A capability may be limited to one tenant: the tenant of the kid in the path. */
function requireAllowedKid(
  auditor: KeyRoutesInit['auditor'],
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'> & { readonly params: { readonly kid: string } },
  op: AuditOp,
  op_id?: string,
): void {
  const { kid } = context.params;
  requireAllowed(auditor, context, { tenant: tenantOf(kid) }, () => [{ op, kid, op_id }]);
}

interface PublicView {
  readonly alg: Alg;
  readonly pubkey_b64?: string;
  readonly parts?: readonly PublicPart[];
}

function createdView(registry: KeyRegistry, kid: string): { kid: string; alg: Alg; public: PublicView } {
  const { record, version } = registry.index.find(kid);
  return { kid, alg: record.alg, public: publicView(record.alg, version.public) };
}

function publicView(alg: Alg, parts: readonly PublicPart[]): PublicView {
  if (parts.length > 1) return { alg, parts };
  const [only] = parts;
  return only === undefined ? { alg } : { alg, pubkey_b64: only.pubkey_b64 };
}

function keyView(record: KeyRecord, version: KeyVersion, attestation_class: string): Record<string, unknown> {
  const { name, alg, versions, imported, verify_mode, min_version } = record;
  const deleting = versions.filter((each) => each.deletable_ms !== undefined && each.deleted !== true);
  return {
    kid: formatKid(name, version.version),
    alg,
    versions: versions.filter((each) => each.deleted !== true).map((each) => `#v${each.version}`),
    public: publicView(alg, version.public),
    attestation_class: imported ? 'imported' : attestation_class,
    verify_mode,
    min_version,
    ...(deleting.length > 0 && {
      deleting: deleting.map((each) => ({ version: `#v${each.version}`, deletable_ms: each.deletable_ms })),
    }),
  };
}

function deletionView(registry: KeyRegistry, kid: string, version: KeyVersion): Record<string, unknown> {
  const { deletable_ms, deleted } = version;
  const state = deleted === true ? 'deleted' : deletable_ms === undefined ? 'kept' : 'pending';
  const name = formatKid(registry.index.record(kid).name, version.version);
  return { kid: name, state, ...(deletable_ms !== undefined && { deletable_ms }) };
}
