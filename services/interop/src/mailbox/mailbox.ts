/** Mailbox, as the sender and the spool drainer use it. */
import type { OutgoingMessage, SendResult } from '@ron/proto';

/**
 * The deliveries that are sent together. Bound: `messages`, and `bytes` of payload, or one delivery. Heads have at most 3 KiB
 * each (`webhooks/message-headers.ts`), so a call stays below the 2 MiB of mailbox.
 */
export const BATCH_LIMITS = { messages: 128, bytes: 1024 * 1024 } as const;

/** For the sender. */
export interface MailboxSends {
  /** Why there is no mailbox at all, such as a missing URL: deliveries are refused, because nothing would empty the spool. */
  readonly missing?: string | undefined;
  /** Whether calls can succeed now: the breaker is closed and there is no brownout. */
  readonly isReady: boolean;
  /** The messages of a topic keep their order. */
  send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]>;
}

/** For the drainer. */
export interface MailboxDrain extends Pick<MailboxSends, 'send'> {
  /** Whether a call may be tried: the breaker is not open, and no operator set the brownout mode to `on`. */
  readonly canTry: boolean;
}
