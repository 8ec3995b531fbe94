/** Domain events of interop and their log levels. */
import type { DeliveryDto } from '@ron/proto';
import type { EventLevel } from '@ron/service';
import type { ReceiptEvent } from './receipts/receipts.ts';
import type { DrainEvent } from './spool/spool-drainer.ts';
import type { SpoolEvent } from './spool/spool.ts';

export type InteropEvent =
  | { readonly kind: 'delivery'; readonly delivery: DeliveryDto }
  | { readonly kind: 'provider changed'; readonly provider: string; readonly change: string }
  | { readonly kind: 'provider closed'; readonly provider: string; readonly problem: string }
  | { readonly kind: 'providers unconfirmed'; readonly problem: string }
  | { readonly kind: 'log missing'; readonly problem: string }
  | { readonly kind: 'brownout began'; readonly upstream: string; readonly problem: string }
  | { readonly kind: 'brownout ended'; readonly upstream: string }
  | { readonly kind: 'brownout set'; readonly mode: string; readonly why: string | undefined }
  | { readonly kind: 'audit failed'; readonly problem: string }
  | SpoolEvent
  | DrainEvent
  | ReceiptEvent;

const LEVELS: Readonly<Record<InteropEvent['kind'], EventLevel>> = {
  delivery: 'debug',
  'provider changed': 'info',
  'provider closed': 'error',
  'providers unconfirmed': 'error',
  'log missing': 'error',
  'brownout began': 'warn',
  'brownout ended': 'info',
  'brownout set': 'warn',
  'spool began': 'warn',
  'spool emptied': 'info',
  'spool problem': 'error',
  'spool recovered': 'info',
  'spool part unreadable': 'error',
  'spool part read': 'info',
  'spool damaged': 'error',
  'spool conflict': 'error',
  'spool unreadable': 'error',
  'spool waits for receipts': 'error',
  'topic refused': 'error',
  'topic full': 'warn',
  'topic has room': 'info',
  'receipts problem': 'error',
  'receipts part unreadable': 'error',
  'receipts part read': 'info',
  'receipts removed': 'info',
  'audit failed': 'error',
};

export function eventLevel({ kind }: InteropEvent): EventLevel {
  return LEVELS[kind];
}
