/** Domain events of mailbox and their log levels. */
import type { EventLevel } from '@ron/service';
import type { DiskEvent } from './store/disk-condition.ts';

export type MailboxEvent =
  | { readonly kind: 'topic created'; readonly topic: string }
  | { readonly kind: 'topic full'; readonly topic: string; readonly problem: string }
  | {
      readonly kind: 'message is dead';
      readonly topic: string;
      readonly id: string;
      readonly seq: number;
      readonly reason: string;
    }
  | {
      readonly kind: 'dead letters dropped';
      readonly topic: string;
      readonly reason: string;
      readonly count: number;
      /** The ids of the first few. */
      readonly ids: readonly string[];
    }
  | { readonly kind: 'message damaged'; readonly topic: string; readonly id: string; readonly seq: number }
  | DiskEvent
  | { readonly kind: 'log damaged'; readonly problem: string }
  | { readonly kind: 'ledger broken'; readonly problem: string }
  | { readonly kind: 'ledger accepted'; readonly problem: string }
  | { readonly kind: 'compaction failed'; readonly problem: string }
  | { readonly kind: 'segment removed'; readonly segment: number; readonly moved: number };

const ERRORS: ReadonlySet<MailboxEvent['kind']> = new Set([
  'ledger broken',
  'message damaged',
  'log damaged',
  'disk failed',
]);

export function eventLevel({ kind }: MailboxEvent): EventLevel {
  if (kind === 'topic created' || kind === 'ledger accepted' || kind === 'disk recovered') return 'info';
  if (kind === 'segment removed') return 'debug';
  return ERRORS.has(kind) ? 'error' : 'warn';
}
