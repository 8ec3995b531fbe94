/** The map page of a pack, and the files of that page. */
import { route, text, Type, type Route } from '@ron/ingress';
import type { PageFiles } from '@ron/pages';
import { PACK_NAME_PATTERN } from '@ron/proto';
import { MAP_PATH, mapHeaders, mapHtml } from '../map/map-page.ts';
import type { Packs } from '../packs/packs.ts';

export interface MapRouteInit {
  readonly packs: Packs;
  readonly mapFiles: PageFiles;
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
}

const Name = Type.Object({ name: Type.String({ pattern: PACK_NAME_PATTERN.source }) }, { additionalProperties: false });

const Rest = Type.Object({ '*': Type.String({ maxLength: 512 }) }, { additionalProperties: false });

export function mapRoutes({ packs, mapFiles, guardReads }: MapRouteInit): Route[] {
  const base = { method: 'GET', lane: 'inline', body: 'none' } as const;
  return [
    route({
      ...base,
      path: `${MAP_PATH}:name`,
      summary: 'Returns a page that draws a pack and verifies its bytes.',
      scope: guardReads ? 'edge:get' : null,
      schema: { params: Name },
      handler: async ({ params, deadline }) => {
        const mount = packs.get(params.name);
        if (mount === undefined) throw packs.absence(params.name);
        const files = await mapFiles.built(deadline.signal);
        return text(200, 'text/html; charset=utf-8', mapHtml(params.name, mount.pack.info, files), mapHeaders(files));
      },
    }),
    route({
      ...base,
      path: `${MAP_PATH}files/*`,
      summary: 'Returns a module or style sheet of the map page. It is program code only, so it needs no capability.',
      scope: null,
      schema: { params: Rest },
      handler: async ({ params, deadline }) => {
        const files = await mapFiles.built(deadline.signal);
        return files.answer(`${MAP_PATH}files/${params['*']}`);
      },
    }),
  ];
}
