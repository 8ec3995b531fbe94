/** Handlers that serve the name log as C2SP tlog-tiles. */
import { bytes, CopiedBytes, text, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { TransparencyLog } from '@ron/tlog/log';

export interface LogRoutesInit {
  /** Undefined while the log could not be opened. */
  readonly log: () => Pick<TransparencyLog, 'checkpoint' | 'readTile'> | undefined;
}

/** The log needs a capability, so a cache must not keep it. */
const PRIVATE = { 'Cache-Control': 'private, no-store' } as const;

export const TILE = {
  params: Type.Object({ '*': Type.String({ maxLength: 128 }) }, { additionalProperties: false }),
} as const satisfies RouteSchema;

export function readCheckpoint(init: LogRoutesInit): RouteAnswer {
  const { checkpoint } = opened(init);
  if (checkpoint === undefined) throw new RonError('not_found', 'the name log has no checkpoint yet');
  return text(200, 'text/plain; charset=utf-8', checkpoint.text, PRIVATE);
}

export async function readTile(
  init: LogRoutesInit,
  { params }: Pick<RouteContext<typeof TILE>, 'params'>,
): Promise<RouteAnswer> {
  const path = `tile/${params['*']}`;
  const tile = await opened(init).readTile(path);
  if (tile === undefined) throw new RonError('not_found', 'the name log has no such tile');
  return bytes(new CopiedBytes(tile, { etag: `"${path}"`, media_type: 'application/octet-stream', headers: PRIVATE }));
}

function opened({ log }: LogRoutesInit): Pick<TransparencyLog, 'checkpoint' | 'readTile'> {
  const found = log();
  if (found === undefined) throw new RonError('not_ready', 'the name log could not be opened: see /readyz');
  return found;
}
