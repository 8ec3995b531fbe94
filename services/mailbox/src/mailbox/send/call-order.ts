/**
 * The order of an ordered call: a message is stored only if those of its topic before it are, or are known already.
 *
 * Contract: behind a message that was refused as `full` or `topic`, all of its topic are refused. Behind one that waits for the
 * send in flight of its key, all of its topic are tried in the next round. Bound: the topics of one call.
 */
import type { SendError, SendResult } from '@ron/proto';

type Refusal = Extract<SendResult, { readonly error: SendError }>;

export class CallOrder {
  readonly #refused = new Map<string, SendError>();
  readonly #waiting = new Set<string>();

  /** A round begins: no message waits. */
  begin(): void {
    this.#waiting.clear();
  }

  /** The result of a message behind one that was refused. */
  refusalOf(topic: string): Refusal | undefined {
    const error = this.#refused.get(topic);
    return error && { error, detail: 'an earlier message of the topic was refused, and the call is ordered' };
  }

  /** A key that is known with another body does not hold up the others. */
  answered(topic: string, result: SendResult): void {
    if ('error' in result && result.error !== 'conflict') this.#refused.set(topic, result.error);
  }

  wait(topic: string): void {
    this.#waiting.add(topic);
  }

  waits(topic: string): boolean {
    return this.#waiting.has(topic);
  }
}
