/** The audit log as C2SP tlog-tiles reads it, and proofs for those who do not read tiles. */
import { bytes, json, route, text, type ByteSource, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { TransparencyLog } from '@ron/tlog';
import { Type } from 'typebox';
import { toBase64 } from '../base64.ts';
import { BASE, strict } from './schemas.ts';

export interface AuditRoutesInit {
  /** Undefined while it could not be opened. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Whether anybody may read it. */
  readonly isPublic: boolean;
}

const IMMUTABLE = { 'Cache-Control': 'public, max-age=31536000, immutable' } as const;
const FRESH = { 'Cache-Control': 'no-cache' } as const;
const ProofSchema = Type.Object(
  {
    log_index: Type.Integer(),
    tree_size: Type.Integer(),
    leaf_hash_b64: Type.String(),
    path_b64: Type.Array(Type.String()),
    entry_b64: Type.String(),
    checkpoint: Type.String(),
  },
  strict,
);

const ConsistencySchema = Type.Object(
  { from: Type.Integer(), to: Type.Integer(), path_b64: Type.Array(Type.String()) },
  strict,
);

export function auditRoutes(init: AuditRoutesInit): Route[] {
  const { origin, vkeys, isPublic } = init;
  const read = {
    method: 'GET',
    scope: isPublic ? null : 'kms:read',
    lane: 'inline',
    body: 'none',
    deadline: 'verify',
  } as const;
  return [
    route({
      ...read,
      path: `${BASE}/audit/checkpoint`,
      summary: 'The last signed checkpoint: a signed note.',
      handler: () => text(200, 'text/plain; charset=utf-8', checkpointOf(opened(init.log)), FRESH),
    }),
    route({
      ...read,
      path: `${BASE}/audit/keys`,
      summary: 'The name of the log, and the keys that sign its checkpoints.',
      schema: { response: { 200: Type.Object({ origin: Type.String(), vkeys: Type.Array(Type.String()) }, strict) } },
      handler: () => json(200, { origin, vkeys }, FRESH),
    }),
    route({
      ...read,
      path: `${BASE}/audit/tile/*`,
      summary: 'A tile of hashes, or with `entries/` a bundle of entries.',
      schema: { params: Type.Object({ '*': Type.String({ maxLength: 128 }) }, strict) },
      handler: async ({ params }) => {
        const path = `tile/${params['*']}`;
        const tile = await opened(init.log).readTile(path);
        if (tile === undefined) throw new RonError('not_found', 'there is no such tile');
        // What a path names never changes: a partial tile is only followed by a fuller one under another path.
        return bytes(tileSource(path, tile), IMMUTABLE);
      },
    }),
    route({
      ...read,
      path: `${BASE}/audit/proof/:log_index`,
      summary: 'That an entry is in the log of the last checkpoint.',
      schema: {
        params: Type.Object({ log_index: Type.String({ pattern: '^(?:0|[1-9][0-9]{0,14})$' }) }, strict),
        response: { 200: ProofSchema },
      },
      handler: async ({ params }) => json(200, await proofOf(opened(init.log), Number(params.log_index)), FRESH),
    }),
    route({
      ...read,
      path: `${BASE}/audit/consistency/:from/:to`,
      summary: 'That the log of one size is the beginning of the log of another.',
      schema: {
        params: Type.Object(
          { from: Type.String({ pattern: '^[1-9][0-9]{0,14}$' }), to: Type.String({ pattern: '^[1-9][0-9]{0,14}$' }) },
          strict,
        ),
        response: { 200: ConsistencySchema },
      },
      handler: async ({ params }) => {
        const [from, to] = [Number(params.from), Number(params.to)];
        if (from > to) throw new RonError('validation', 'the first size is the smaller one');
        return json(200, { from, to, path_b64: (await opened(init.log).consistency(from, to)).map(toBase64) }, FRESH);
      },
    }),
  ];
}

/** A proof with everything that is needed to check it offline. */
export async function proofOf(log: TransparencyLog, index: number): Promise<unknown> {
  const checkpoint = log.checkpoint;
  if (checkpoint === undefined || index >= checkpoint.size) {
    throw new RonError('not_found', `entry ${index} is not covered by a checkpoint`);
  }
  const [{ size, leaf, path }, entry] = await Promise.all([log.proof(index, checkpoint.size), log.entry(index)]);
  return {
    log_index: index,
    tree_size: size,
    leaf_hash_b64: toBase64(leaf),
    path_b64: path.map(toBase64),
    entry_b64: toBase64(entry),
    checkpoint: checkpoint.text,
  };
}

function opened(log: TransparencyLog | undefined): TransparencyLog {
  if (log !== undefined) return log;
  throw new RonError('audit_integrity', 'the audit log could not be opened; see `ron audit verify`');
}

function checkpointOf(log: TransparencyLog): string {
  if (log.checkpoint !== undefined) return log.checkpoint.text;
  throw new RonError('not_found', 'nothing has been signed yet');
}

function tileSource(path: string, tile: Uint8Array): ByteSource {
  return {
    size: tile.length,
    etag: `"${path}"`,
    media_type: 'application/octet-stream',
    ram: [tile],
    async *read(start, end) {
      yield [tile.subarray(start, end)];
    },
  };
}
