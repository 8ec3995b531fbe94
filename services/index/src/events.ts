/** Domain events of index and their log levels. */
import type { EventLevel } from '@ron/service';

export type IndexEvent =
  | { readonly kind: 'name forked'; readonly key: string; readonly label: string; readonly seq: number }
  | { readonly kind: 'breaker opened'; readonly target: string }
  | { readonly kind: 'provider failed'; readonly provider: string; readonly address: string; readonly problem: string };

export function eventLevel({ kind }: IndexEvent): EventLevel {
  return kind === 'name forked' ? 'error' : 'warn';
}
