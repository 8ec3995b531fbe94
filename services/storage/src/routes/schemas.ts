/** Shapes that several routes share. */
import type { Route } from '@ron/ingress';
import { ADDRESS_PATTERN, type Durability, type ObjectReceipt } from '@ron/proto';
import { Type, type TSchema } from 'typebox';

/** A schema for each field of what callers know: none less, none more. */
export type Fields<T> = Record<keyof T, TSchema>;

export const strict = { additionalProperties: false } as const;

/** Longer than an address, so that what is wrong with one can be told. */
export const Addr = Type.Object({ addr: Type.String({ maxLength: 256 }) }, strict);

export const DurabilitySchema = Type.Object(
  { fsynced: Type.Boolean(), copies: Type.Integer(), target: Type.Integer() } satisfies Fields<Durability>,
  strict,
);

export const ReceiptSchema = Type.Object(
  {
    address: Type.String({ pattern: ADDRESS_PATTERN }),
    size: Type.Integer(),
    durability: DurabilitySchema,
  } satisfies Fields<ObjectReceipt>,
  strict,
);

type Facts = NonNullable<Route['facts']>;

/** A capability may be limited to addresses. */
export const byAddress: Facts = ({ params }) => ({ address: params['addr'] });
