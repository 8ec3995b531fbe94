import type { JsonSchema } from '@ron/ingress';

/** Exactly one schema for each field of `T`. */
export type Fields<T> = Record<keyof T, JsonSchema>;
