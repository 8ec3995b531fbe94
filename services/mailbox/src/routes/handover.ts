/**
 * The passing of leased messages to a receiver.
 *
 * Contract: [mailbox I-12] messages that were leased for a request are released exactly if the request ends without its whole
 * answer: the client left, the deadline passed, a drain cut it. It makes no difference whether that happens before the lease,
 * while the messages wait for the answer, or while it is sent. After `answered`, the release counts as a delivery.
 * Cancellation: by `gone` of the request.
 *
 *     const handover = new Handover(context.gone);
 *     const { messages } = await queue.submit(lane, deadline, async () => handover.hold(await receive()));
 *     return handover.answered(json(200, messages));
 */
import type { RouteAnswer } from '@ron/ingress';
import { onAbort } from '@ron/kernel';
import type { Delivery } from '../mailbox/operations.ts';

export class Handover {
  readonly #gone: AbortSignal;
  #began = false;

  /** Read `gone` before anything is leased: a request that fails earlier aborts only a signal that exists. */
  constructor(gone: AbortSignal) {
    this.#gone = gone;
  }

  /** Call it in the synchronous step in which the messages are leased. */
  hold(delivery: Delivery): Delivery {
    if (delivery.messages.length > 0) onAbort(this.#gone, () => delivery.release(this.#began));
    return delivery;
  }

  /** From now on the client may have received a part of the answer. */
  answered(answer: RouteAnswer): RouteAnswer {
    this.#began = true;
    return answer;
  }
}
