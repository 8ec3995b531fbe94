import type { JsonSchema } from '@ron/ingress';

/** Exactly one schema for each field of `T`: a field that one side lacks is a type error. */
export type Fields<T> = Record<keyof T, JsonSchema>;
