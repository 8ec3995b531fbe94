/** Gives back the space of settled messages. */
import type { LiveMessages } from './live-messages.ts';
import type { MailboxLog } from './mailbox-log.ts';

export type CompactorEvent =
  | { readonly kind: 'segment removed'; readonly segment: number; readonly moved: number; readonly bytes: number }
  | { readonly kind: 'compaction failed'; readonly problem: string }
  | { readonly kind: 'ledger broken'; readonly problem: string };

export interface CompactorInit {
  log: MailboxLog;
  live: LiveMessages;
  onEvent: (event: CompactorEvent) => void;
}

export class Compactor {
  constructor(_init: CompactorInit) {}

  /** The loop of the task `compactor`; ends when the signal aborts. */
  run(_signal: AbortSignal): Promise<void> {
    throw new Error('not written yet');
  }
}
