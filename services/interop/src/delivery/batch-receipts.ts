/**
 * The receipts of a batch: those that exist already, and those that are written once its deliveries are durable.
 *
 * Contract: a receipt certifies the body of its own delivery. A duplicate is answered with the receipt of the first delivery if
 * that one fits it; otherwise it gets one of its own. The id of the first delivery is stated by mailbox, and each holder of
 * `mailbox:send` could have stored the key under any id: so the receipt must be of the same provider, and of the same body
 * unless mailbox says that the bodies differ. Such a holder can still name another receipt of the provider for a conflict.
 * A first receipt that a crash prevented is written for a duplicate with the same body. One that may have been removed since is
 * not, because its id would have two receipts. It is not written for another body either, because interop does not know the
 * first one any more: the message in mailbox has no receipt then, and the one of the duplicate certifies that interop accepted a
 * body that no receiver gets.
 * Bound: the deliveries of the batch. Cancellation: by the deadlines of `writing`.
 */
import { isRonError, type Deadline } from '@ron/kernel';
import type { WebhookReceipt } from '@ron/proto';
import type { Receipts } from '../receipts/receipts.ts';
import { unavailable } from './delivery-batch.ts';

export class BatchReceipts {
  readonly #receipts: Pick<Receipts, 'has' | 'isRestorable' | 'read' | 'append'>;
  /** Bounds one append or read. */
  readonly #writing: () => Deadline;
  /** By id. */
  readonly #missing = new Map<string, WebhookReceipt>();

  constructor(receipts: Pick<Receipts, 'has' | 'isRestorable' | 'read' | 'append'>, writing: () => Deadline) {
    this.#receipts = receipts;
    this.#writing = writing;
  }

  has(id: string): boolean {
    return this.#missing.has(id) || this.#receipts.has(id);
  }

  /** It is written with the others unless it exists. Returns its id. */
  add(receipt: WebhookReceipt): string {
    if (!this.has(receipt.id)) this.#missing.set(receipt.id, receipt);
    return receipt.id;
  }

  /** Mailbox has the same body under the key of a delivery. Returns the id of the receipt. */
  async addDuplicate(own: WebhookReceipt, first_id: string): Promise<string> {
    // If it never existed, a crash came between the message and its receipt.
    if (!this.has(first_id)) return this.add(this.#receipts.isRestorable(first_id) ? { ...own, id: first_id } : own);
    const first = await this.#find(first_id);
    return first?.provider === own.provider && first.b3 === own.b3 ? first_id : this.add(own);
  }

  /** Mailbox has another body under the key of a delivery. Returns the id of the receipt. */
  async addConflict(own: WebhookReceipt, first_id: string): Promise<string> {
    const first = await this.#find(first_id);
    return first?.provider === own.provider ? first_id : this.add(own);
  }

  /** [interop I-9] One append for the batch. */
  async write(): Promise<void> {
    if (this.#missing.size === 0) return;
    using writing = this.#writing();
    try {
      await this.#receipts.append([...this.#missing.values()], writing.signal);
    } catch (error) {
      if (isRonError(error, 'storage_full')) throw unavailable('the disk of the receipt log is full', error);
      throw unavailable('the receipt log cannot be written', error);
    }
  }

  /** Undefined if there is none, or it cannot be read. */
  async #find(id: string): Promise<WebhookReceipt | undefined> {
    const missing = this.#missing.get(id);
    if (missing !== undefined || !this.#receipts.has(id)) return missing;
    using reading = this.#writing();
    try {
      return await this.#receipts.read(id, reading.signal);
    } catch {
      return undefined;
    }
  }
}
