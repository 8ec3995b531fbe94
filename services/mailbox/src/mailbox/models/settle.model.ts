/**
 * An ack, a nack and an extend of one lease at the same time, on the real mailbox, and a receiver that waits.
 *
 * Their results and the state of the message are those of some order of the calls: at most one of an ack and a dead letter
 * is `ok`, and after a redelivery all tokens of the lease are `stale`.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { onMailbox, type Parts } from './testing/model-mailbox.ts';

const HOLD_MS = 1000;

export type Call = 'ack' | 'nack' | 'dead' | 'extend' | 'receive';
type MessageState = 'leased' | 'ready' | 'acked' | 'dead';

/** The message by its specification: each call is one step. */
class Reference {
  state: MessageState = 'leased';
  isRedelivered = false;

  call(call: Call): string {
    if (call === 'receive') return this.#receive();
    if (this.isRedelivered || this.state === 'acked' || this.state === 'dead') return 'stale';
    const next = { ack: 'acked', nack: 'ready', dead: 'dead', extend: 'leased' } as const;
    this.state = next[call];
    return 'ok';
  }

  #receive(): string {
    if (this.state !== 'ready') return 'empty';
    this.state = 'leased';
    this.isRedelivered = true;
    return 'message';
  }
}

function* ordersOf(calls: readonly Call[]): Iterable<readonly Call[]> {
  if (calls.length === 0) yield [];
  for (const first of calls) {
    for (const rest of ordersOf(calls.filter((call) => call !== first))) yield [first, ...rest];
  }
}

const outcomeOf = (results: ReadonlyMap<Call, string>, state: string): string =>
  [...[...results].map(([call, result]) => `${call} ${result}`).toSorted(), state].join(', ');

function allowed(calls: readonly Call[]): ReadonlySet<string> {
  const outcomes = new Set<string>();
  for (const order of ordersOf(calls)) {
    const message = new Reference();
    const results = new Map(order.map((call) => [call, message.call(call)]));
    outcomes.add(outcomeOf(results, message.state));
  }
  return outcomes;
}

/** All `calls` at once. The first delivery is leased for longer than the model runs. */
export function settleOnce(parts: Parts, calls: readonly Call[]): Build {
  const outcomes = allowed(calls);
  return onMailbox(parts, {}, async (box) => {
    await box.send('a');
    const message = (await box.receive())[0]!;
    const execute: Record<Call, () => Promise<string>> = {
      ack: () => box.ack(message),
      nack: () => box.nack(message, { delay_ms: 0 }),
      dead: () => box.nack(message, { dead: true }),
      extend: () => box.extend(message, HOLD_MS),
      receive: async () => ((await box.awaitMessage({ wait_ms: HOLD_MS })).length === 0 ? 'empty' : 'message'),
    };
    const results = new Map<Call, string>();
    const task = (call: Call) => [call, async () => void results.set(call, await execute[call]())] as const;
    return {
      tasks: Object.fromEntries(calls.map(task)),
      final: () => {
        const states = ['leased', 'ready', 'acked', 'dead'] as const;
        const outcome = outcomeOf(results, states.filter((state) => box.counts[state] === 1).join());
        assert.ok(outcomes.has(outcome), `no order of the calls has this outcome: ${outcome}`);
      },
    };
  });
}
