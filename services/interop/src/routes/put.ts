/** `POST /put`. */
import { route, Type, type Route } from '@ron/ingress';
import { ADDRESS_PATTERN, type Durability, type ObjectReceipt } from '@ron/proto';
import type { PutBridge } from '../bridge/put.ts';
import type { Fields } from './fields.ts';

const strict = { additionalProperties: false } as const;
const Count = Type.Integer({ minimum: 0 });
const DurabilitySchema = Type.Object(
  { fsynced: Type.Boolean(), copies: Count, target: Count } satisfies Fields<Durability>,
  strict,
);
const Receipt = Type.Object(
  {
    address: Type.String({ pattern: ADDRESS_PATTERN }),
    size: Count,
    durability: DurabilitySchema,
  } satisfies Fields<ObjectReceipt>,
  strict,
);

export interface PutRoutesInit {
  readonly put: Pick<PutBridge, 'handle'>;
  readonly bytes_max: number;
  readonly decoded_bytes_max: number;
}

export function putRoutes({ put, bytes_max, decoded_bytes_max }: PutRoutesInit): Route[] {
  return [
    route({
      method: 'POST',
      path: '/put',
      summary:
        'Stores a body in storage and returns its receipt. Larger ones are streamed; X-Content-B3 states the address of a stream.',
      scope: 'interop:put',
      // Known at the end of the body.
      facts_later: ['address'],
      // The bridge waits for a worker once it has a small body, or a slot for a stream.
      lane: 'inline',
      // No deadline of its own: a body may take as long as its client keeps sending. `request` begins at its last byte.
      body: 'stream',
      body_bytes_max: bytes_max,
      decoded_bytes_max,
      schema: { response: { 200: Receipt, 201: Receipt } },
      handler: (context) => put.handle(context),
    }),
  ];
}
