/** The route that removes cached assets. */
import { json, route, Type, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { EdgePurgedDto } from '@ron/proto';
import type { AssetCache, PurgeSelection } from '../cache/asset-cache.ts';
import type { EdgeConfig } from '../config.ts';
import { parseOrigin } from '../fill/live-path.ts';
import { namedAsset, PATH_CHARS_MAX } from '../why/named-asset.ts';
import { ADMIN } from './admin.ts';

export interface PurgeRouteInit {
  readonly current: { readonly value: Pick<EdgeConfig, 'fill'> };
  readonly cache: Pick<AssetCache, 'purge'>;
}

const Text = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: PATH_CHARS_MAX, description }));
const PurgeSchema = Type.Object(
  {
    key: Text('One asset, by its path below /edge/assets/.'),
    prefix: Text('All assets whose keys begin with it: live/HOST/ and the beginning of a path, or o/ or pack/.'),
    host: Text('All assets of an origin: `host` or `host:port`.'),
  },
  { additionalProperties: false, minProperties: 1, maxProperties: 1 },
);

export function purgeRoute({ cache, current }: PurgeRouteInit): Route {
  return route({
    ...ADMIN,
    method: 'POST',
    path: '/edge/purge',
    summary:
      'Removes cached assets: one key, all with a prefix, or all of a host. Fills that began before are not kept.',
    body: 'buffered',
    schema: {
      body: PurgeSchema,
      response: { 200: Type.Object({ removed: Type.Integer() }, { additionalProperties: false }) },
    },
    handler: async ({ body, deadline }) => {
      const selection = selectionOf(body, current.value.fill.query);
      const answer: EdgePurgedDto = { removed: await cache.purge(selection, deadline.signal) };
      return json(200, answer, { 'Cache-Control': 'no-store' });
    },
  });
}

interface PurgeBody {
  readonly key?: string;
  readonly prefix?: string;
  readonly host?: string;
}

/** Each may have any spelling that a request may have. */
function selectionOf({ key, prefix, host }: PurgeBody, allowed: readonly string[]): PurgeSelection {
  if (key !== undefined) return { key: keyOf(key, allowed) };
  if (host !== undefined) return { host: hostOf(host) };
  return { prefix: prefixOf(prefix!, allowed) };
}

/** Below `live/`, the beginning of a path has one spelling, as a path has. */
function prefixOf(text: string, allowed: readonly string[]): string {
  if (/^live\/[^/]+\//.test(text)) return keyOf(text, allowed);
  if (/^(?:live\/|o\/(?:b3:[0-9a-f]{0,64})?|pack\/[a-z0-9_./-]*)$/.test(text)) return text;
  throw new RonError('validation', 'a prefix is live/, or begins with live/HOST/, o/b3: or pack/');
}

function keyOf(text: string, allowed: readonly string[]): string {
  const target = namedAsset(text, allowed);
  if (target.kind === 'fetched') return target.missing.key;
  throw new RonError('validation', 'tiles and files of packs are not cached assets: remove the pack instead');
}

function hostOf(text: string): string {
  const origin = parseOrigin(`https://${text}`);
  if (origin === undefined) throw new RonError('validation', 'the host is not a host name or host:port');
  return origin.slice('https://'.length);
}
