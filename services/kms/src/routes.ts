/**
 * The HTTP surface of kms: one row per route, with its scope, lane, deadline, schema and handler.
 *
 * Every route with `facts_later` compares the tenant and the name of each key with the capability before it does anything.
 * To add a route: add a row here, its schema to `routes/schemas.ts` and its handler to a file in `routes/`.
 */
import { route, type Route } from '@ron/ingress';
import { deriveAudienceKey, readRoot, retireRoot, rotateRoot, type AudienceRoutesInit } from './routes/audience.ts';
import {
  readCheckpoint,
  pruneLog,
  readConsistency,
  readLogKeys,
  readMark,
  readProof,
  readTile,
  type AuditRoutesInit,
} from './routes/audit.ts';
import { acceptDamage, readStatus, type AuditDamageInit } from './routes/audit-damage.ts';
import { factsOf } from './routes/caller.ts';
import {
  createKey,
  deleteKey,
  disableKey,
  enableKey,
  importKey,
  listKeys,
  readAttestation,
  readKey,
  restoreKey,
  rotateKey,
  setPolicy,
  type KeyRoutesInit,
} from './routes/keys.ts';
import { withKeysInMemory } from './routes/keys-in-memory.ts';
import { appendEntry, type EntryRoutesInit } from './routes/entries.ts';
import * as schemas from './routes/schemas.ts';
import { derive, makeDataKey, unwrap, wrap, type SecretRoutesInit } from './routes/secrets.ts';
import { sign, verify, type SignRoutesInit } from './routes/sign.ts';

export type KmsRoutesInit = KeyRoutesInit &
  SignRoutesInit &
  SecretRoutesInit &
  AudienceRoutesInit &
  EntryRoutesInit &
  AuditRoutesInit &
  AuditDamageInit;

const BASE = '/v1/kms';
const GET = { method: 'GET', lane: 'inline', body: 'none', deadline: 'verify' } as const;
const POST = {
  method: 'POST',
  lane: 'inline',
  body: 'buffered',
  deadline: 'sign',
  facts_later: ['tenant', 'name'],
} as const;
/** Changes the key that the path names. */
const CHANGE = { ...POST, encoded_slash: true } as const;
/** Withdraws the key that the path names, or a version of it, or undoes that. */
const WITHDRAW = { ...CHANGE, scope: 'kms:delete' } as const;

export function routes(init: KmsRoutesInit): Route[] {
  const all = [
    ...keyRoutes(init),
    ...versionRoutes(init),
    ...signRoutes(init),
    ...secretRoutes(init),
    ...audienceRoutes(init),
    ...entryRoutes(init),
    ...auditRoutes(init),
    ...auditDamageRoutes(init),
  ];
  return all.map((each) => withKeysInMemory(init.registry, each));
}

function keyRoutes(init: KeyRoutesInit): Route[] {
  return [
    route({
      ...POST,
      path: `${BASE}/keys`,
      scope: 'kms:create',
      summary: 'Creates a key. Its private part never leaves the backend.',
      schema: schemas.CREATE,
      handler: (context) => createKey(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/keys/import`,
      scope: 'kms:create',
      summary: 'Imports a public key, for verification only.',
      schema: schemas.IMPORT,
      handler: (context) => importKey(init, context),
    }),
    route({
      ...GET,
      path: `${BASE}/keys`,
      scope: 'kms:read',
      summary:
        'Lists keys by name, below `prefix`. `next` is set if more follow, even after fewer than `limit`: pass it as `after`.',
      facts: ({ query }) => ({ tenant: query['tenant'], name: query['prefix'] }),
      schema: schemas.LIST,
      handler: (context) => listKeys(init, context),
    }),
    route({
      ...GET,
      path: `${BASE}/keys/:kid`,
      scope: 'kms:read',
      encoded_slash: true,
      summary: 'Returns a key: its versions, and the public part of the named version or of the current one.',
      facts: ({ params }) => factsOf(params['kid'] ?? ''),
      schema: schemas.READ,
      handler: (context) => readKey(init, context),
    }),
    route({
      ...GET,
      path: `${BASE}/attestation`,
      scope: 'kms:read',
      summary: "Returns the backend's attestation, if it has one.",
      schema: schemas.ATTESTATION,
      handler: () => readAttestation(init),
    }),
  ];
}

function versionRoutes(init: KeyRoutesInit): Route[] {
  return [
    route({
      ...CHANGE,
      path: `${BASE}/keys/:kid/rotate`,
      scope: 'kms:rotate',
      summary: 'Creates a new version, which signs from now on. Older versions verify down to min_version.',
      schema: schemas.ROTATE,
      handler: (context) => rotateKey(init, context),
    }),
    route({
      ...WITHDRAW,
      path: `${BASE}/keys/:kid/policy`,
      summary:
        'Sets min_version. Older versions no longer verify; after the waiting period they no longer unwrap and derive. ' +
        'Until then it can be lowered again.',
      schema: schemas.POLICY,
      handler: (context) => setPolicy(init, context),
    }),
    route({
      ...WITHDRAW,
      path: `${BASE}/keys/:kid/disable`,
      body: 'none',
      summary: 'Disables a key: it no longer signs, wraps, unwraps and derives. It still verifies.',
      schema: schemas.DISABLE,
      handler: (context) => disableKey(init, context),
    }),
    route({
      ...WITHDRAW,
      path: `${BASE}/keys/:kid/enable`,
      body: 'none',
      summary: 'Enables a disabled key.',
      schema: schemas.DISABLE,
      handler: (context) => enableKey(init, context),
    }),
    route({
      ...WITHDRAW,
      path: `${BASE}/keys/:kid/delete`,
      summary:
        'Deletes a version that is not current or, without a version and with {"whole": true}, the key. ' +
        'A second call after the waiting period is required. A key is disabled by the first call.',
      schema: schemas.DELETE,
      handler: (context) => deleteKey(init, context),
    }),
    route({
      ...WITHDRAW,
      path: `${BASE}/keys/:kid/restore`,
      body: 'none',
      summary: 'Cancels the deletion of a version or of a key during its waiting period.',
      schema: schemas.RESTORE,
      handler: (context) => restoreKey(init, context),
    }),
  ];
}

function signRoutes(init: SignRoutesInit): Route[] {
  return [
    route({
      ...POST,
      path: `${BASE}/sign`,
      scope: 'kms:sign',
      summary: 'Signs a payload with one key or several, or a batch of payloads in `items`.',
      schema: schemas.SIGN,
      handler: (context) => sign(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/verify`,
      scope: 'kms:verify',
      deadline: 'verify',
      summary: 'Verifies signatures. A signature that does not verify is an answer, not an error.',
      schema: schemas.VERIFY,
      handler: (context) => verify(init, context),
    }),
  ];
}

function secretRoutes(init: SecretRoutesInit): Route[] {
  return [
    route({
      ...POST,
      path: `${BASE}/wrap`,
      scope: 'kms:wrap',
      summary: "Wraps the caller's key.",
      schema: schemas.WRAP,
      handler: (context) => wrap(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/unwrap`,
      scope: 'kms:unwrap',
      summary: 'Unwraps a key that was wrapped with the same additional data.',
      schema: schemas.UNWRAP,
      handler: (context) => unwrap(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/datakey`,
      scope: 'kms:wrap',
      summary: 'Generates a data key and returns it in plaintext and wrapped.',
      schema: schemas.DATA_KEY,
      handler: (context) => makeDataKey(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/derive`,
      scope: 'kms:derive',
      summary: 'Derives a secret from the key and a label.',
      facts_later: ['tenant', 'name', 'label'],
      schema: schemas.DERIVE,
      handler: (context) => derive(init, context),
    }),
  ];
}

/** The root of the keys that verify capabilities. It is not a key of any tenant. */
function audienceRoutes(init: AudienceRoutesInit): Route[] {
  const change = { ...POST, scope: 'kms:audience', facts_later: ['label'] } as const;
  return [
    route({
      ...GET,
      path: `${BASE}/audience`,
      // Version numbers only. A service must learn of a retired root even if its own capability was retired with it.
      scope: null,
      summary: 'Returns the current and the first valid version of the audience root. Services poll it.',
      schema: schemas.AUDIENCE_STATE,
      handler: (context) => readRoot(init, context),
    }),
    route({
      ...change,
      path: `${BASE}/audience/derive`,
      summary: 'Derives the key with which a service verifies capabilities.',
      schema: schemas.AUDIENCE_DERIVE,
      handler: (context) => deriveAudienceKey(init, context),
    }),
    route({
      ...change,
      path: `${BASE}/audience/rotate`,
      summary: 'Creates the version of the audience root after the given one. Older versions stay valid.',
      schema: schemas.AUDIENCE_ROTATE,
      handler: (context) => rotateRoot(init, context),
    }),
    route({
      ...change,
      path: `${BASE}/audience/retire`,
      summary: 'Makes capabilities under older versions of the audience root invalid, within two seconds.',
      schema: schemas.AUDIENCE_RETIRE,
      handler: (context) => retireRoot(init, context),
    }),
  ];
}

/** The audit log as other services of the node write to it. */
function entryRoutes(init: EntryRoutesInit): Route[] {
  return [
    route({
      ...POST,
      path: `${BASE}/audit/entries`,
      scope: 'kms:log',
      facts_later: [],
      summary: 'Appends an entry of another service of the node, once per op_id.',
      schema: schemas.ENTRY,
      handler: (context) => appendEntry(init, context),
    }),
  ];
}

/** C2SP tlog-tiles, and proofs for clients that do not read tiles. */
function auditRoutes(init: AuditRoutesInit): Route[] {
  const read = { ...GET, scope: init.isPublic ? null : 'kms:read' } as const;
  return [
    route({
      ...read,
      path: `${BASE}/audit/checkpoint`,
      summary: 'Returns the latest checkpoint, a signed note.',
      handler: () => readCheckpoint(init),
    }),
    route({
      ...read,
      path: `${BASE}/audit/keys`,
      // A tenant verifies the proofs of its own entries with these public keys.
      facts_ignored: ['tenant', 'name'],
      summary: "Returns the log's name and the keys that sign its checkpoints.",
      schema: schemas.LOG_KEYS,
      handler: () => readLogKeys(init),
    }),
    route({
      ...read,
      path: `${BASE}/audit/pruned`,
      summary: 'Returns the index of the first entry, and of the entry that announces the removal of those before it.',
      schema: schemas.PRUNED,
      handler: () => readMark(init),
    }),
    route({
      ...POST,
      facts_later: [],
      path: `${BASE}/audit/prune`,
      scope: 'kms:audit',
      deadline: 'prune',
      summary: 'Removes all entries before an index permanently, behind a signed checkpoint. The log records it.',
      schema: schemas.PRUNE,
      handler: (context) => pruneLog(init, context),
    }),
    route({
      ...read,
      path: `${BASE}/audit/tile/*`,
      summary: 'Returns a tile of hashes, or a bundle of entries below `entries/`.',
      schema: schemas.TILE,
      handler: (context) => readTile(init, context),
    }),
    route({
      ...read,
      path: `${BASE}/audit/proof/:log_index`,
      ...(init.isPublic ? {} : { facts_later: ['tenant', 'name'] }),
      summary: "Proves that the latest checkpoint covers an entry. A capability for one tenant reads its own entries'.",
      schema: schemas.PROOF,
      handler: (context) => readProof(init, context),
    }),
    route({
      ...read,
      path: `${BASE}/audit/consistency/:from/:to`,
      summary: 'Proves that the log of one size is a prefix of the log of another.',
      schema: schemas.CONSISTENCY,
      handler: (context) => readConsistency(init, context),
    }),
  ];
}

/** For the operator of a log that was damaged. */
function auditDamageRoutes(init: AuditDamageInit): Route[] {
  return [
    route({
      ...GET,
      path: `${BASE}/audit/status`,
      scope: 'kms:audit',
      summary: 'States whether the audit log is sound, and the damage if it is not.',
      schema: schemas.STATUS,
      handler: (context) => readStatus(init, context),
    }),
    route({
      method: 'POST',
      lane: 'inline',
      body: 'buffered',
      deadline: 'sign',
      path: `${BASE}/audit/accept`,
      scope: 'kms:audit',
      summary:
        'Accepts the damage: the next start archives the log and begins a new one, whose first entry records it.',
      schema: schemas.ACCEPT,
      handler: (context) => acceptDamage(init, context),
    }),
  ];
}
