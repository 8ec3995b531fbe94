/** Handlers that read the audit log. */
import { bytes, json, text, type RouteAnswer, type ByteSource, type RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { TransparencyLog } from '@ron/tlog';
import { proofOf } from '../audit/proof.ts';
import { toBase64 } from '../base64.ts';
import type * as schemas from './schemas.ts';

export interface AuditRoutesInit {
  /** Undefined while the log could not be opened. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Whether the log is readable without a capability. */
  readonly isPublic: boolean;
}

const IMMUTABLE = { 'Cache-Control': 'public, max-age=31536000, immutable' } as const;
const FRESH = { 'Cache-Control': 'no-cache' } as const;

export function readCheckpoint({ log }: AuditRoutesInit): RouteAnswer {
  const { checkpoint } = opened(log);
  if (checkpoint === undefined) throw new RonError('not_found', 'the log has no checkpoint yet');
  return text(200, 'text/plain; charset=utf-8', checkpoint.text, FRESH);
}

export function readLogKeys({ origin, vkeys }: AuditRoutesInit): RouteAnswer {
  return json(200, { origin, vkeys }, FRESH);
}

export async function readTile(
  { log }: AuditRoutesInit,
  { params }: RouteContext<typeof schemas.TILE>,
): Promise<RouteAnswer> {
  const path = `tile/${params['*']}`;
  const tile = await opened(log).readTile(path);
  if (tile === undefined) throw new RonError('not_found', 'the log has no such tile');
  // A tile never changes: a fuller version of a partial tile has another path.
  return bytes(tileSource(path, tile), IMMUTABLE);
}

export async function readProof(
  { log }: AuditRoutesInit,
  { params }: RouteContext<typeof schemas.PROOF>,
): Promise<RouteAnswer> {
  return json(200, await proofOf(opened(log), Number(params.log_index)), FRESH);
}

export async function readConsistency(
  { log }: AuditRoutesInit,
  { params }: RouteContext<typeof schemas.CONSISTENCY>,
): Promise<RouteAnswer> {
  const [from, to] = [Number(params.from), Number(params.to)];
  if (from > to) throw new RonError('validation', 'the first size is larger than the second');
  return json(200, { from, to, path_b64: (await opened(log).consistency(from, to)).map(toBase64) }, FRESH);
}

function opened(log: TransparencyLog | undefined): TransparencyLog {
  if (log !== undefined) return log;
  throw new RonError('audit_integrity', 'the audit log could not be opened; run `ron audit verify`');
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
