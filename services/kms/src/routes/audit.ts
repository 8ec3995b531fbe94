/** Handlers that read the audit log. */
import { bytes, json, text, type RouteAnswer, type ByteSource, type RouteContext } from '@ron/ingress';
import { isRonError, RonError } from '@ron/kernel';
import { encodeMark, proveEntry, type TransparencyLog } from '@ron/tlog';
import type { Pruner } from '../audit/pruner.ts';
import { toBase64 } from '../base64.ts';
import { callerOf } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface AuditRoutesInit {
  /** Undefined while the log could not be opened. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Whether the log is readable without a capability. */
  readonly isPublic: boolean;
  readonly pruner: Pruner;
}

const IMMUTABLE = { 'Cache-Control': 'public, max-age=31536000, immutable' } as const;
const FRESH = { 'Cache-Control': 'no-cache' } as const;
/** A cache must not keep a log that needs a capability. */
const PRIVATE = { 'Cache-Control': 'private, no-store' } as const;

const freshOf = ({ isPublic }: AuditRoutesInit): typeof FRESH | typeof PRIVATE => (isPublic ? FRESH : PRIVATE);

export function readCheckpoint(init: AuditRoutesInit): RouteAnswer {
  const { checkpoint } = opened(init.log);
  if (checkpoint === undefined) throw new RonError('not_found', 'the log has no checkpoint yet');
  return text(200, 'text/plain; charset=utf-8', checkpoint.text, freshOf(init));
}

export function readLogKeys(init: AuditRoutesInit): RouteAnswer {
  const { origin, vkeys } = init;
  return json(200, { origin, vkeys }, freshOf(init));
}

export function readMark(init: AuditRoutesInit): RouteAnswer {
  const { mark } = opened(init.log);
  if (mark === undefined) throw new RonError('not_found', 'no entries were removed from the log');
  return text(200, 'application/json', encodeMark(mark).toString(), freshOf(init));
}

export async function pruneLog(
  { pruner }: AuditRoutesInit,
  context: RouteContext<typeof schemas.PRUNE>,
): Promise<RouteAnswer> {
  return json(200, await pruner.prune(context.body.before, callerOf(context)), NO_STORE);
}

export async function readTile(
  { log, isPublic }: AuditRoutesInit,
  { params }: RouteContext<typeof schemas.TILE>,
): Promise<RouteAnswer> {
  const path = `tile/${params['*']}`;
  const tile = await opened(log).readTile(path);
  if (tile === undefined) throw new RonError('not_found', 'the log has no such tile');
  // A tile never changes: a fuller version of a partial tile has another path.
  return bytes(tileSource(path, tile), isPublic ? IMMUTABLE : PRIVATE);
}

/** A capability for one tenant, or one key, reads the proofs of its own entries. */
export async function readProof(
  init: AuditRoutesInit,
  context: Pick<RouteContext<typeof schemas.PROOF>, 'params' | 'actsOn'>,
): Promise<RouteAnswer> {
  const log = opened(init.log);
  const index = Number(context.params.log_index);
  try {
    const entry = await log.entry(index);
    context.actsOn(factsOf(entry));
    return json(200, await proveEntry(log, index), freshOf(init));
  } catch (error) {
    // One answer for both, which does not reveal how many entries other tenants have.
    if (isRonError(error, 'forbidden') || isRonError(error, 'not_found')) throw unreadable(index);
    throw error;
  }
}

/** The tenant and the key of an entry. Entries of the log itself have none. */
function factsOf(entry: Uint8Array): { tenant: string | undefined; name: string | undefined } {
  const { tenant, kid } = JSON.parse(Buffer.from(entry).toString()) as Record<string, unknown>;
  const ifText = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
  return { tenant: ifText(tenant), name: ifText(kid) };
}

const unreadable = (index: number): RonError =>
  new RonError('not_found', `entry ${index} has no checkpoint yet, does not exist, or belongs to another tenant`);

export async function readConsistency(
  init: AuditRoutesInit,
  { params }: RouteContext<typeof schemas.CONSISTENCY>,
): Promise<RouteAnswer> {
  const [from, to] = [Number(params.from), Number(params.to)];
  if (from > to) throw new RonError('validation', 'the first size is larger than the second');
  const path_b64 = (await opened(init.log).consistency(from, to)).map(toBase64);
  return json(200, { from, to, path_b64 }, freshOf(init));
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
