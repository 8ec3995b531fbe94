/**
 * `ron hooks tail`: prints deliveries as they happen.
 *
 * Contract: every recorded delivery is printed once, in order. The live stream says when; the list of recent deliveries fills
 * the gaps: the time before the stream, events that a slow reader lost, and the time while the stream is cut, when it is
 * polled. Deliveries that have left the list are reported as lost. With a name, only those of this provider are printed and
 * counted; it must exist at the start. Ends after `--max` lines, at Ctrl-C (exit code 130) and when the reader of the output
 * closes it. Bound: one page in memory. Cancellation: by the signal.
 */
import type { InteropClient } from '@ron/client';
import { isRonError, sched, sleep } from '@ron/kernel/core';
import { INTEROP_LIMITS, type DeliveryDto } from '@ron/proto';
import type { Exit } from '../exits.ts';
import { messageOf } from '../exits.ts';
import { numberArg } from '../quantity-args.ts';
import { counted } from '../queue/mailbox-service.ts';
import { deliveryText } from './delivery-text.ts';
import type { HooksInvocation } from './hooks-options.ts';
import { providerArg, withInterop } from './interop-service.ts';

const POLL_MS = 1000;
/** How long the list is polled before the stream is tried again. */
const RECONNECT_MS = 5000;
const LAST_DEFAULT = 10;
const COUNT_MAX = 1_000_000_000;

export async function tail(invocation: HooksInvocation, [name]: readonly string[]): Promise<Exit | void> {
  const { values, signal } = invocation;
  const provider = name === undefined ? undefined : providerArg(name);
  const last =
    values.last === undefined ? LAST_DEFAULT : numberArg('--last', values.last, 0, INTEROP_LIMITS.deliveries);
  const max = values.max === undefined ? COUNT_MAX : numberArg('--max', values.max, 1, COUNT_MAX);
  try {
    await withInterop(invocation, async (client) => await new Tail(invocation, client, provider, max).run(last));
  } catch (error) {
    if (signal.aborted && error === signal.reason) return 'interrupted';
    throw error;
  }
}

class Tail {
  readonly #invocation: HooksInvocation;
  readonly #client: InteropClient;
  readonly #provider: string | undefined;
  #left: number;
  /** The number of the newest delivery that was seen. */
  #seen = 0;

  constructor(invocation: HooksInvocation, client: InteropClient, provider: string | undefined, max: number) {
    this.#invocation = invocation;
    this.#client = client;
    this.#provider = provider;
    this.#left = max;
  }

  async run(last: number): Promise<void> {
    const { io, signal } = this.#invocation;
    if (this.#provider !== undefined) await this.#client.provider(this.#provider, { signal });
    await this.#begin(last);
    while (this.#left > 0) {
      try {
        await this.#follow();
      } catch (error) {
        if (signal.aborted || !isTemporary(error)) throw error;
        io.note(`the live stream broke off (${messageOf(error)}): polling`);
      }
      await this.#poll();
    }
  }

  /** Prints the last deliveries of the list. */
  async #begin(last: number): Promise<void> {
    let kept: DeliveryDto[] = [];
    for await (const delivery of this.#listed(() => undefined))
      if (this.#isWanted(delivery)) kept = [...kept, delivery].slice(-Math.max(last, 1));
    for (const delivery of last === 0 ? [] : kept.slice(0, this.#left)) await this.#show(delivery);
  }

  /** Until the stream ends, or there are enough. */
  async #follow(): Promise<void> {
    const { io, signal } = this.#invocation;
    for await (const event of this.#client.events({ signal })) {
      if (event.kind === 'lag') io.note(`lagged behind by ${counted(event.lost, 'event')}: reading the list`);
      const isNext = event.kind === 'delivery' && event.delivery.seq === this.#seen + 1;
      if (isNext) {
        this.#seen += 1;
        await this.#show(event.delivery);
      } else if (event.kind !== 'delivery' || event.delivery.seq > this.#seen) await this.#catchUp();
      if (this.#left <= 0) return;
    }
  }

  async #poll(): Promise<void> {
    const { signal } = this.#invocation;
    const until_ms = sched.now_ms() + RECONNECT_MS;
    while (this.#left > 0 && sched.now_ms() < until_ms) {
      await this.#catchUp().catch((error: unknown) => {
        if (signal.aborted || !isTemporary(error)) throw error;
      });
      await sleep(POLL_MS, signal, 'hooks.tail');
    }
  }

  /** Prints the deliveries of the list that were not seen. */
  async #catchUp(): Promise<void> {
    const { io } = this.#invocation;
    const onLost = (lost: number): void => {
      io.note(`${counted(lost, 'delivery', 'deliveries')} lost: they have left the list`);
      if (io.json) io.result('', { lost });
    };
    for await (const delivery of this.#listed(onLost)) {
      if (this.#left <= 0) return;
      await this.#show(delivery);
    }
  }

  async *#listed(onLost: (lost: number) => void): AsyncGenerator<DeliveryDto, void, void> {
    const { signal } = this.#invocation;
    for (;;) {
      const query = { after: this.#seen, limit: INTEROP_LIMITS.deliveries_page };
      const { deliveries, next, lost } = await this.#client.deliveries(query, { signal });
      // Lower than before if interop has restarted with a clock that was set back.
      this.#seen = next;
      if (lost > 0) onLost(lost);
      yield* deliveries;
      if (deliveries.length === 0) return;
    }
  }

  async #show(delivery: DeliveryDto): Promise<void> {
    if (!this.#isWanted(delivery)) return;
    const { io } = this.#invocation;
    io.result(deliveryText(delivery), delivery);
    await io.flushed();
    this.#left -= 1;
  }

  #isWanted({ provider }: DeliveryDto): boolean {
    return this.#provider === undefined || provider === this.#provider;
  }
}

/** Interop restarts, drains, is overloaded, or has no stream: the list still answers, now or later. */
function isTemporary(error: unknown): boolean {
  if (!isRonError(error)) return false;
  return error.retryable || error.code === 'unreachable' || error.code === 'not_found';
}
