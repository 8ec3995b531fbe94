/** Handlers for the life of a key. They return public parts only; no handler returns a private key. */
import type { Alg, Backend, PublicPart } from '@ron/custody';
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError, sched } from '@ron/kernel';
import type { Auditor } from '../audit/auditor.ts';
import type { AuditOp } from '../audit/event.ts';
import type { Deletion } from '../keys/key-lifecycle.ts';
import {
  headOf,
  stateOf,
  summaryOf,
  type KeyFields,
  type KeyRecord,
  type KeyVersion,
  type VersionSummary,
} from '../keys/key-record.ts';
import type { KeyRegistry } from '../keys/key-registry.ts';
import { deletedName, headName, type KeyService } from '../keys/key-service.ts';
import { formatKid, nameOf, parseKid, RAW_PURPOSE } from '../keys/kid.ts';
import { effectiveAt_ms, minDataVersion } from '../keys/min-version.ts';
import { callerOf, factsOf, requireAllowed, requireUnreserved } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface KeyRoutesInit {
  readonly registry: KeyRegistry;
  readonly keys: KeyService;
  readonly auditor: Pick<Auditor, 'recordRefusal'>;
  /** It holds the keys. */
  readonly backend: Pick<Backend, 'attestation_class' | 'attestationClassOf'>;
  readonly attestation: () => unknown;
}

const LIST_DEFAULT = 100;

export async function createKey(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.CREATE>,
): Promise<RouteAnswer> {
  const { tenant, purpose, alg, op_id, policy } = context.body;
  const prefix = `${tenant}/${purpose}/${alg}/`;
  requireAllowed(auditor, context, factsOf(prefix), () => [{ op: 'create', kid: prefix, op_id }]);
  const request = { tenant, purpose, alg, verify_mode: policy?.verify_mode, rotate: policy?.rotate };
  const kid = await keys.create(request, op_id, callerOf(context));
  return json(201, createdView(registry, kid), NO_STORE);
}

export async function importKey(
  { registry, keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.IMPORT>,
): Promise<RouteAnswer> {
  const { tenant, alg, pubkey_b64 } = context.body;
  const prefix = `${tenant}/${RAW_PURPOSE}/${alg}/`;
  requireAllowed(auditor, context, factsOf(prefix), () => [{ op: 'import', kid: prefix }]);
  const record = await keys.import({ tenant, alg, pubkey_b64 }, callerOf(context));
  return json(201, createdView(registry, headName(record)), NO_STORE);
}

export async function listKeys(
  { registry, backend }: KeyRoutesInit,
  { query, deadline }: RouteContext<typeof schemas.LIST>,
): Promise<RouteAnswer> {
  requireUnreserved({ tenant: query.tenant });
  const limit = Number(query.limit ?? LIST_DEFAULT);
  const after = query.after === undefined ? '' : nameOf(query.after);
  const { keys, next } = await registry.page({ prefix: prefixOf(query), after, limit }, deadline);
  const views = keys.map(({ fields, head, summary }) => summaryView(fields, head, summary, backend));
  return json(200, { keys: views, ...(next === undefined ? {} : { next }) }, NO_STORE);
}

/** Both a tenant and a prefix may be given: the keys in both are listed. */
function prefixOf({ tenant, prefix = '' }: { readonly tenant?: string; readonly prefix?: string }): string {
  const below = tenant === undefined ? '' : `${tenant}/`;
  if (prefix.startsWith(below)) return prefix;
  if (below.startsWith(prefix)) return below;
  throw new RonError('validation', 'prefix names keys of another tenant');
}

export function readKey(
  { registry, backend }: KeyRoutesInit,
  { params }: RouteContext<typeof schemas.READ>,
): RouteAnswer {
  requireUnreserved(factsOf(params.kid));
  const { record, version } = registry.index.find(params.kid);
  return json(200, keyView(record, version, backend), NO_STORE);
}

export function readAttestation({ backend, attestation }: KeyRoutesInit): RouteAnswer {
  return json(200, { attestation_class: backend.attestation_class, attestation: attestation() ?? null }, NO_STORE);
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
  { keys, auditor, backend }: KeyRoutesInit,
  context: RouteContext<typeof schemas.POLICY>,
): Promise<RouteAnswer> {
  const kid = requireWhole(auditor, context, 'policy');
  const record = await keys.setMinVersion(kid, context.body.min_version, callerOf(context));
  return json(200, keyView(record, headOf(record), backend), NO_STORE);
}

export async function disableKey(
  { keys, auditor, backend }: KeyRoutesInit,
  context: RouteContext<typeof schemas.DISABLE>,
): Promise<RouteAnswer> {
  const kid = requireWhole(auditor, context, 'disable');
  const record = await keys.disable(kid, callerOf(context));
  return json(200, keyView(record, headOf(record), backend), NO_STORE);
}

export async function enableKey(
  { keys, auditor, backend }: KeyRoutesInit,
  context: RouteContext<typeof schemas.DISABLE>,
): Promise<RouteAnswer> {
  const kid = requireWhole(auditor, context, 'enable');
  const record = await keys.enable(kid, callerOf(context));
  return json(200, keyView(record, headOf(record), backend), NO_STORE);
}

/** A kid with a version deletes that version. A kid without one deletes the key, and the body must say so. */
export async function deleteKey(
  { keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.DELETE>,
): Promise<RouteAnswer> {
  requireAllowedKid(auditor, context, 'delete');
  const target = targetOf(context.params.kid);
  if ((target === 'key') !== (context.body?.whole ?? false)) {
    const error = new RonError(
      'validation',
      'name one version (#v1), or the key without a version and {"whole": true}',
    );
    auditor.recordRefusal(callerOf(context), { op: 'delete', kid: context.params.kid }, error);
    throw error;
  }
  const deletion = await keys.delete(context.params.kid, target, callerOf(context));
  const view = deletionView(deletion);
  return json(view.state === 'deleted' ? 200 : 202, view, NO_STORE);
}

/** Cancels a deletion of the version or the key that the kid names. */
export async function restoreKey(
  { keys, auditor }: KeyRoutesInit,
  context: RouteContext<typeof schemas.RESTORE>,
): Promise<RouteAnswer> {
  requireAllowedKid(auditor, context, 'restore');
  const { kid } = context.params;
  return json(200, deletionView(await keys.restore(kid, targetOf(kid), callerOf(context))), NO_STORE);
}

const targetOf = (kid: string): 'key' | 'version' => (parseKid(kid).version === undefined ? 'key' : 'version');

type KidContext = Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'> & { readonly params: { readonly kid: string } };

/** The operation acts on all versions, so a kid with a version is refused instead of misunderstood. */
function requireWhole(auditor: KeyRoutesInit['auditor'], context: KidContext, op: AuditOp): string {
  requireAllowedKid(auditor, context, op);
  const { kid } = context.params;
  if (targetOf(kid) === 'key') return kid;
  const error = new RonError('validation', `name the key without a version: ${op} acts on all versions`);
  auditor.recordRefusal(callerOf(context), { op, kid }, error);
  throw error;
}

/** A capability may be limited to one tenant or to some keys: the kid in the path must match. */
function requireAllowedKid(auditor: KeyRoutesInit['auditor'], context: KidContext, op: AuditOp, op_id?: string): void {
  const { kid } = context.params;
  requireAllowed(auditor, context, factsOf(kid), () => [{ op, kid, op_id }]);
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

function keyView(record: KeyRecord, version: KeyVersion, backend: KeyRoutesInit['backend']): Record<string, unknown> {
  return summaryView(record, version, summaryOf(record), backend);
}

function summaryView(
  fields: KeyFields,
  version: KeyVersion,
  summary: VersionSummary,
  backend: KeyRoutesInit['backend'],
): Record<string, unknown> {
  const { name, alg, imported, verify_mode, min_version, rotate = true, deletable_ms } = fields;
  const now_ms = sched.wall_ms();
  const effective_ms = effectiveAt_ms(fields, now_ms);
  const { deleting } = summary;
  return {
    kid: formatKid(name, version.version),
    alg,
    state: stateOf(fields, summary),
    ...(deletable_ms !== undefined && { deletable_ms }),
    versions: versionsIn(summary),
    public: publicView(alg, version.public),
    attestation_class: imported ? 'imported' : backend.attestationClassOf(alg),
    verify_mode,
    rotate,
    min_version,
    min_version_unwrap: minDataVersion(fields, now_ms),
    ...(effective_ms !== undefined && { effective_ms }),
    ...(deleting.length > 0 && {
      deleting: deleting.map(([number, until_ms]) => ({ version: `#v${number}`, deletable_ms: until_ms })),
    }),
  };
}

function versionsIn({ count, deleted }: VersionSummary): string[] {
  const gone = new Set(deleted);
  const numbers = Array.from({ length: count }, (_, at) => at + 1);
  return numbers.filter((number) => !gone.has(number)).map((number) => `#v${number}`);
}

function deletionView(deletion: Deletion): { kid: string; state: string; deletable_ms?: number } {
  const { deletable_ms, deleted } = deletion.version ?? deletion.record;
  const state = deleted === true ? 'deleted' : deletable_ms === undefined ? 'kept' : 'pending';
  return { kid: deletedName(deletion), state, ...(deletable_ms !== undefined && { deletable_ms }) };
}
