/** Domain events of mailbox and their log levels. */
import type { EventLevel } from '@ron/service';
import type { DiskEvent } from './store/disk-condition.ts';

export type MailboxEvent =
  | { readonly kind: 'topic created'; readonly topic: string }
  | { readonly kind: 'topic full'; readonly topic: string; readonly problem: string }
  | {
      readonly kind: 'messages are dead';
      readonly topic: string;
      readonly reason: string;
      readonly count: number;
      /** The ids of the first few. */
      readonly ids: readonly string[];
    }
  | {
      readonly kind: 'dead letters removed';
      readonly topic: string;
      readonly by: 'replay' | 'delete';
      readonly count: number;
      /** The numbers of the first few. */
      readonly seqs: readonly number[];
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

const LEVELS: Readonly<Record<MailboxEvent['kind'], EventLevel>> = {
  'topic created': 'info',
  'topic full': 'warn',
  'messages are dead': 'warn',
  'dead letters removed': 'info',
  'dead letters dropped': 'warn',
  'message damaged': 'error',
  'log damaged': 'error',
  'ledger broken': 'error',
  'ledger accepted': 'info',
  'disk full': 'warn',
  'disk failed': 'error',
  'disk recovered': 'info',
  'compaction failed': 'warn',
  'segment removed': 'debug',
};

export function eventLevel({ kind }: MailboxEvent): EventLevel {
  return LEVELS[kind];
}
