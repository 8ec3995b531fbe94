/** Access to edge for commands. */
import { EdgeClient } from '@ron/client';
import { PACK_NAME_PATTERN } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { Io } from '../io.ts';
import type { ConnectionValues, ResolvedService } from '../resolve-service.ts';
import { withClient } from '../service-client.ts';

export function withEdge<T>(
  values: ConnectionValues,
  io: Pick<Io, 'env'>,
  signal: AbortSignal,
  work: (client: EdgeClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  return withClient('edge', (init) => new EdgeClient(init), values, io, signal, work);
}

export function packNameArg(text: string): string {
  if (PACK_NAME_PATTERN.test(text)) return text;
  const rule = 'use 1 to 64 of a-z, 0-9, _ and -';
  throw new CliError('usage', `${JSON.stringify(text)} cannot be the name of a pack: ${rule}, with --name for a file`);
}

const ASSETS = '/edge/assets/';

/** The key of an asset: its path below `/edge/assets/`, also from a path or URL with that prefix. */
export function assetKeyArg(text: string): string {
  const path = /^https?:\/\//i.test(text) && URL.canParse(text) ? pathOf(new URL(text)) : text;
  return path.startsWith(ASSETS) ? path.slice(ASSETS.length) : path.replace(/^\//, '');
}

const pathOf = ({ pathname, search }: URL): string => pathname + search;
