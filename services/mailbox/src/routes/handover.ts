/**
 * The passing of leased messages to a receiver.
 *
 * Contract: [mailbox I-12] messages that were leased for a request are released exactly if the request ends without its whole
 * answer: the client left, the deadline passed, a drain cut it. It makes no difference whether that happens before the lease,
 * while the messages wait for the answer, or while it is sent. Call it in the synchronous step in which they are leased.
 * Cancellation: by `gone` of the request. Read it before anything is leased: a request that fails earlier aborts only a signal
 * that exists.
 *
 *     const { gone } = context;
 *     const { messages } = await queue.submit(lane, deadline, async () => handOver(await receive(), gone));
 */
import { onAbort } from '@ron/kernel';
import type { Delivery } from '../mailbox/operations.ts';

export function handOver(delivery: Delivery, gone: AbortSignal): Delivery {
  if (delivery.messages.length > 0) onAbort(gone, () => delivery.release());
  return delivery;
}
