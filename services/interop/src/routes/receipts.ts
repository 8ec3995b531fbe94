/** `GET /receipts/{id}`: a receipt, with its proof once it is signed. */
import { json, route, Type, type Route } from '@ron/ingress';
import { Deadline, RonError } from '@ron/kernel';
import { ULID_PATTERN, type UnsignedReceipt } from '@ron/proto';
import type { Receipts } from '../receipts/receipts.ts';
import { SignedAnswer, UnsignedAnswer } from './receipt-schemas.ts';

/** How long `?wait=1` waits for the signature. */
export const RECEIPT_WAIT_MS = 2000;
/** The wait, and two reads. */
const DEADLINE_MS = 5000;
const RETRY_AFTER_S = 1;

const Params = Type.Object({ id: Type.String({ pattern: ULID_PATTERN }) }, { additionalProperties: false });
const Query = Type.Object({ wait: Type.Optional(Type.Literal('1')) }, { additionalProperties: false });

export interface ReceiptRoutesInit {
  readonly receipts: Pick<Receipts, 'get' | 'untilSigned'>;
}

export function receiptRoutes({ receipts }: ReceiptRoutesInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/receipts/:id',
      summary:
        'Returns a signed receipt; 202 while kms has not signed it. `?wait=1` waits up to 2 s for the signature.',
      scope: 'interop:get',
      lane: 'inline',
      body: 'none',
      deadline_ms: DEADLINE_MS,
      schema: { params: Params, query: Query, response: { 200: SignedAnswer, 202: UnsignedAnswer } },
      handler: async (context) => {
        const { params, query, deadline, draining } = context;
        const find = async () => {
          const state = await receipts.get(params.id, deadline.signal);
          if (state !== undefined) return state;
          throw new RonError('not_found', 'no such receipt, or it was removed');
        };
        let state = await find();
        if (state.signed === undefined && query.wait === '1') {
          await context.park(async () => {
            // [interop I-5] [interop I-6] The wait ends with the time, the client or a drain.
            using hold = Deadline.after('receipt_wait', RECEIPT_WAIT_MS, { parent: deadline, signal: draining });
            await receipts.untilSigned(params.id, hold.signal);
          });
          state = await find();
        }
        const { receipt, signed } = state;
        if (signed !== undefined) return json(200, signed, { 'Cache-Control': 'no-store' });
        return json(202, { receipt } satisfies UnsignedReceipt, {
          'Cache-Control': 'no-store',
          'Retry-After': String(RETRY_AFTER_S),
        });
      },
    }),
  ];
}
