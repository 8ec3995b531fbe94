/** Handlers that serve a transparency log of a service as C2SP tlog-tiles, to holders of a capability. */
import { bytes, CopiedBytes, text, Type, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { RonError } from '@ron/kernel';

/** The part of a `TransparencyLog` that is served. */
export interface ServedLog {
  readonly checkpoint: { readonly text: string } | undefined;
  readTile(path: string): Promise<Uint8Array | undefined>;
}

export interface LogAnswersInit {
  /** For messages, such as `name log`. */
  readonly name: string;
  /** Undefined while the log could not be opened. */
  readonly log: () => ServedLog | undefined;
}

/** The log needs a capability, so a cache must not keep it. */
export const PRIVATE_LOG = { 'Cache-Control': 'private, no-store' } as const;

export const LOG_TILE = {
  params: Type.Object({ '*': Type.String({ maxLength: 128 }) }, { additionalProperties: false }),
} as const satisfies RouteSchema;

export function logAnswers({ name, log }: LogAnswersInit) {
  const opened = (): ServedLog => {
    const found = log();
    if (found === undefined) throw new RonError('not_ready', `the ${name} could not be opened: see /readyz`);
    return found;
  };
  return {
    checkpoint: (): RouteAnswer => {
      const { checkpoint } = opened();
      if (checkpoint === undefined) throw new RonError('not_found', `the ${name} has no checkpoint yet`);
      return text(200, 'text/plain; charset=utf-8', checkpoint.text, PRIVATE_LOG);
    },
    tile: async ({ params }: Pick<RouteContext<typeof LOG_TILE>, 'params'>): Promise<RouteAnswer> => {
      const path = `tile/${params['*']}`;
      const tile = await opened().readTile(path);
      if (tile === undefined) throw new RonError('not_found', `the ${name} has no such tile`);
      const etag = `"${path}"`;
      return bytes(new CopiedBytes(tile, { etag, media_type: 'application/octet-stream', headers: PRIVATE_LOG }));
    },
  };
}
