/**
 * Verifies signatures in threads: one ML-DSA-87 verification takes 0.26 ms, and many requests arrive at once.
 *
 * Contract: as `verifyWith`. Until a thread is running, signatures are verified on the event loop.
 * Bound, overflow, cancellation: as `ThreadBatches`.
 */
import type { KeyObject } from 'node:crypto';
import { verifyCost_us, type SigningAlg } from '../algorithms/algorithms.ts';
import type { PublicPart } from '../backend/backend.ts';
import { packed } from './packed.ts';
import { publicKeyOf, verifyWith } from '../algorithms/public-keys.ts';
import { ThreadBatches } from './thread-batches.ts';

export interface Check {
  readonly part: PublicPart & { readonly alg: SigningAlg };
  readonly message: Uint8Array;
  readonly signature: Uint8Array;
}

interface ToCheck {
  readonly key: KeyObject;
  readonly message: Uint8Array;
  readonly signature: Uint8Array;
}

const CHECKS_MAX = 4096;

export class CheckThreads implements AsyncDisposable {
  readonly #batches: ThreadBatches<ToCheck, boolean>;

  constructor(threads: number) {
    this.#batches = new ThreadBatches({
      name: 'custody.verify',
      threads,
      queue_max: CHECKS_MAX,
      module: new URL('./crypto-thread.ts', import.meta.url),
      fn: 'verifyAll',
      pack: packChecks,
      unpack: (good: Uint8Array) => Array.from(good, (each) => each === 1),
    });
  }

  /** Whether each signature verifies. */
  verify(checks: readonly Check[], signal: AbortSignal): Promise<boolean[]> {
    if (!this.#batches.isReady) {
      return Promise.resolve(checks.map(({ part, message, signature }) => verifyWith(part, message, signature)));
    }
    let cost_us = 0;
    const items = checks.map(({ part, message, signature }) => {
      cost_us += verifyCost_us(part.alg, message.length);
      return { key: publicKeyOf(part), message, signature };
    });
    return this.#batches.run(items, cost_us, signal);
  }

  close(): Promise<void> {
    return this.#batches.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function packChecks(checks: readonly ToCheck[]): readonly unknown[] {
  const { all, which } = distinct(checks.map(({ key }) => key));
  return [all, which, packed(checks.flatMap(({ message, signature }) => [message, signature]))];
}

/** The distinct items, and for each position the index of its item among them. */
export function distinct<T>(items: readonly T[]): { readonly all: readonly T[]; readonly which: Uint16Array } {
  const places = new Map<T, number>();
  const which = new Uint16Array(items.length);
  items.forEach((item, at) => {
    let place = places.get(item);
    if (place === undefined) places.set(item, (place = places.size));
    which[at] = place;
  });
  return { all: [...places.keys()], which };
}
