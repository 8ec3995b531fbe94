/**
 * Sends batches of webhooks to mailbox, for the sender and the spool drainer.
 *
 * Contract: `send` resolves with one result for each message, in order. Messages of a topic keep their
 * order: a small one does not pass a large one that finds no room. An answer that does not fit is an error of mailbox. Tries
 * share the deadline `mailbox`; messages have idempotency keys, so a further try stores none twice. The capability is narrowed
 * to each batch, and read anew after mailbox refused it.
 * `isReady` is for the sender, `canTry` for the drainer, which also works in a brownout that the sentinel
 * began.
 * Bound: as `MailboxClient.send`; callers bound the batches in flight. Overflow: `breaker_open` while the breaker is open.
 * Cancellation: by the deadline `mailbox`; the messages may be stored then.
 */
import { narrowed } from '@ron/auth/narrowed';
import { MailboxClient, type AuthorizedRequest } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { isRonError, RonError, type Deadline } from '@ron/kernel';
import type { OutgoingMessage, SendResult } from '@ron/proto';
import { CapabilityFile } from './capability-file.ts';
import type { Retry, Upstream } from './upstream.ts';

export interface MailboxAccessInit {
  readonly upstream: Upstream;
  readonly url: string;
  readonly capability_file: string;
  readonly connect_ms: number;
  /** A fresh deadline for a batch with all its tries. */
  readonly sending: () => Deadline;
  /** Retries `deliver`. */
  readonly retry: Retry;
}

export class MailboxAccess {
  readonly #init: MailboxAccessInit;
  readonly #file: CapabilityFile;
  readonly #client: MailboxClient;
  #capability_problem: string | undefined;

  constructor(init: MailboxAccessInit) {
    this.#init = init;
    const file = new CapabilityFile(init.capability_file);
    this.#file = file;
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(file.current, { audience: 'mailbox', body });
    this.#client = new MailboxClient({ ...reachPrivately(init.url), authorize, connect_ms: init.connect_ms });
  }

  get isReady(): boolean {
    return this.#init.upstream.isReady;
  }

  get canTry(): boolean {
    return this.#init.upstream.canTry;
  }

  /** For the gate `mailbox`. */
  get problem(): string | undefined {
    return this.#capability_problem ?? this.#init.upstream.problem;
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    const { upstream, sending, retry } = this.#init;
    using deadline = sending();
    try {
      await deadline.within(this.#file.token());
      const work = (within: AbortSignal): Promise<readonly SendResult[]> => this.#sendOnce(messages, within);
      // [interop I-4] All tries share one deadline.
      const results = await upstream.callIdempotent('send', deadline, work, retry);
      this.#capability_problem = undefined;
      return results;
    } catch (error) {
      this.#noteCapability(error);
      throw error;
    }
  }

  async #sendOnce(messages: readonly OutgoingMessage[], signal: AbortSignal): Promise<readonly SendResult[]> {
    // The client checks that there is one result for each message, with the hash of its payload.
    const results = await this.#client.send(messages, { ordered: true, signal });
    for (const [at, { id }] of messages.entries()) {
      const result = results[at]!;
      if (id !== undefined && !('error' in result) && !result.duplicate && result.id !== id)
        throw new RonError('integrity', 'mailbox answered in another order', { op: 'send' });
    }
    return results;
  }

  /** Its own capability is the only one that these calls use, so a refusal is a problem of this node. */
  #noteCapability(error: unknown): void {
    if (isRonError(error) && error.op === 'key_file') this.#capability_problem = error.message;
    if (!isRonError(error, 'unauthorized') && !isRonError(error, 'forbidden')) return;
    this.#file.forget();
    this.#capability_problem = `mailbox refuses the capability: ${error.message}`;
  }
}
