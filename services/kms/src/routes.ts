/**
 * The HTTP surface of kms: one row per route, with its scope, lane, deadline, schema and handler.
 *
 * Every route with `facts_later` compares the tenant of the named key with the capability before it does anything.
 * To add a route: add a row here, its schema to `routes/schemas.ts` and its handler to a file in `routes/`.
 */
import { route, type Route } from '@ron/ingress';
import { tenantOf } from './keys/kid.ts';
import {
  readCheckpoint,
  readConsistency,
  readLogKeys,
  readProof,
  readTile,
  type AuditRoutesInit,
} from './routes/audit.ts';
import {
  createKey,
  deleteVersion,
  importKey,
  listKeys,
  readAttestation,
  readKey,
  restoreVersion,
  rotateKey,
  setPolicy,
  type KeyRoutesInit,
} from './routes/keys.ts';
import { withKeysInMemory } from './routes/keys-in-memory.ts';
import * as schemas from './routes/schemas.ts';
import { derive, makeDataKey, unwrap, wrap, type SecretRoutesInit } from './routes/secrets.ts';
import { sign, verify, type SignRoutesInit } from './routes/sign.ts';

export type KmsRoutesInit = KeyRoutesInit & SignRoutesInit & SecretRoutesInit & AuditRoutesInit;

const BASE = '/v1/kms';
const GET = { method: 'GET', lane: 'inline', body: 'none', deadline: 'verify' } as const;
const POST = { method: 'POST', lane: 'inline', body: 'buffered', deadline: 'sign', facts_later: ['tenant'] } as const;
/** Changes the key that the path names. */
const CHANGE = { ...POST, scope: 'kms:rotate', encoded_slash: true } as const;

export function routes(init: KmsRoutesInit): Route[] {
  const all = [
    ...keyRoutes(init),
    ...versionRoutes(init),
    ...signRoutes(init),
    ...secretRoutes(init),
    ...auditRoutes(init),
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
      summary: 'Lists keys by name. `after` continues a list where it ended.',
      facts: ({ query }) => ({ tenant: query['tenant'] }),
      schema: schemas.LIST,
      handler: (context) => listKeys(init, context),
    }),
    route({
      ...GET,
      path: `${BASE}/keys/:kid`,
      scope: 'kms:read',
      encoded_slash: true,
      summary: 'Returns a key: its versions, and the public part of the named version or of the current one.',
      facts: ({ params }) => ({ tenant: tenantOf(params['kid'] ?? '') }),
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
      summary: 'Creates a new version, which signs from now on. Older versions verify down to min_version.',
      schema: schemas.ROTATE,
      handler: (context) => rotateKey(init, context),
    }),
    route({
      ...CHANGE,
      path: `${BASE}/keys/:kid/policy`,
      summary: 'Raises min_version: older versions no longer verify.',
      schema: schemas.POLICY,
      handler: (context) => setPolicy(init, context),
    }),
    route({
      ...CHANGE,
      path: `${BASE}/keys/:kid/delete`,
      body: 'none',
      summary: 'Deletes a version that is not current. A second call after the waiting period is required.',
      schema: schemas.DELETE,
      handler: (context) => deleteVersion(init, context),
    }),
    route({
      ...CHANGE,
      path: `${BASE}/keys/:kid/restore`,
      body: 'none',
      summary: 'Cancels a deletion during its waiting period.',
      schema: schemas.RESTORE,
      handler: (context) => restoreVersion(init, context),
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
      facts_later: ['tenant', 'label'],
      schema: schemas.DERIVE,
      handler: (context) => derive(init, context),
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
      summary: "Returns the log's name and the keys that sign its checkpoints.",
      schema: schemas.LOG_KEYS,
      handler: () => readLogKeys(init),
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
      summary: 'Proves that the latest checkpoint covers an entry.',
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
