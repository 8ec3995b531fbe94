/** Routes that serve the fill log as C2SP tlog-tiles, in the form that `ron audit verify` reads. */
import { json, route, text, Type, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { EdgeFillKeysDto } from '@ron/proto';
import { LOG_TILE, logAnswers, PRIVATE_LOG } from '@ron/service';
import { encodeMark } from '@ron/tlog/log';
import type { FillLog } from '../fill-log/fill-log.ts';
import { ADMIN } from './admin.ts';

export interface FillRoutesInit {
  readonly fillLog: Pick<FillLog, 'served' | 'keys'>;
}

const KeysSchema = Type.Object(
  { origin: Type.String(), vkeys: Type.Array(Type.String()) },
  { additionalProperties: false },
);

export function fillRoutes({ fillLog }: FillRoutesInit): Route[] {
  const answers = logAnswers({ name: 'fill log', log: () => fillLog.served });
  const get = { ...ADMIN, method: 'GET', body: 'none' } as const;
  return [
    route({
      ...get,
      path: '/edge/fills/checkpoint',
      summary: 'Returns the latest checkpoint of the fill log, a signed note.',
      handler: answers.checkpoint,
    }),
    route({
      ...get,
      path: '/edge/fills/tile/*',
      summary: 'Returns a tile of hashes of the fill log, or a bundle of entries below `entries/`.',
      schema: LOG_TILE,
      handler: answers.tile,
    }),
    route({
      ...get,
      path: '/edge/fills/pruned',
      summary: 'Returns the first entry of the fill log that was not pruned.',
      handler: () => {
        const mark = fillLog.served?.mark;
        if (mark === undefined) throw new RonError('not_found', 'no entries were removed from the fill log');
        return text(200, 'application/json', encodeMark(mark).toString(), PRIVATE_LOG);
      },
    }),
    route({
      ...get,
      path: '/edge/fills/keys',
      summary: 'Returns the name of the fill log and the keys that sign it.',
      schema: { response: { 200: KeysSchema } },
      handler: () => json(200, keysOf(fillLog), PRIVATE_LOG),
    }),
  ];
}

function keysOf({ keys }: FillRoutesInit['fillLog']): EdgeFillKeysDto {
  if (keys !== undefined) return keys;
  throw new RonError('not_ready', 'the fill log could not be opened: see /readyz');
}
