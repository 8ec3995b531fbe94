/** Domain events of edge and their log levels. */
import type { EventLevel } from '@ron/service';

export type EdgeEvent =
  | { readonly kind: 'pack mounted'; readonly pack: string; readonly address: string }
  | { readonly kind: 'pack removed'; readonly pack: string }
  | { readonly kind: 'pack refused'; readonly pack: string; readonly problem: string }
  | { readonly kind: 'pack damaged'; readonly pack: string; readonly problem: string }
  /** The next start reads the pack in full. */
  | { readonly kind: 'pack hashes not kept'; readonly pack: string; readonly problem: string }
  | { readonly kind: 'fill failed'; readonly origin: string; readonly problem: string }
  | { readonly kind: 'cache disk failed'; readonly problem: string }
  | { readonly kind: 'mode changed'; readonly mode: 'offline' | 'live' };

export function eventLevel({ kind }: EdgeEvent): EventLevel {
  if (kind === 'pack mounted' || kind === 'pack removed' || kind === 'mode changed') return 'info';
  return kind === 'pack damaged' ? 'error' : 'warn';
}
