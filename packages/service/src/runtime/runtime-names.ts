/**
 * Looks up names in a declaration: literal types for the compiler, an error with a hint at run time.
 */
import { RonError } from '@ron/kernel';
import { nearest } from '@ron/config';
import type { Channel, Concurrency } from './declaration.ts';

/** Names of the declared channels of one kind. */
export type ChannelName<D extends Concurrency, Kind extends Channel['kind']> = {
  [N in keyof D['channels']]: D['channels'][N] extends { kind: Kind } ? N : never;
}[keyof D['channels']] &
  string;

/** Names of an optional table. */
export type NameIn<Table> = keyof NonNullable<Table> & string;

export function declared<T>(what: string, table: Readonly<Record<string, T>>, name: string): T {
  const entry = Object.hasOwn(table, name) ? table[name] : undefined;
  if (entry !== undefined) return entry;
  const meant = nearest(name, Object.keys(table));
  throw new RonError(
    'internal',
    `${what} ${name} is not declared${meant === undefined ? '' : `; did you mean ${meant}?`}`,
  );
}

export function retryLabels({ retries = {}, retry_labels = ['op'] }: Concurrency): Record<string, readonly string[]> {
  const values = { op: Object.keys(retries), result: ['ok', 'failed'] };
  return Object.fromEntries(retry_labels.map((label) => [label, values[label]]));
}

export function isKind<Kind extends Channel['kind']>(
  channel: Channel,
  kind: Kind,
): channel is Channel & { kind: Kind } {
  return channel.kind === kind;
}
