/**
 * Registers a listener for the abort of a signal.
 *
 * Contract: the listener is called at most once, with the signal's reason: synchronously before `onAbort` returns if the
 * signal has aborted already, otherwise when it aborts. After disposal it is not called. Disposing is idempotent.
 * Bound: one listener on the signal until it aborts or the registration is disposed; none on `NEVER`.
 *
 *     using _ = onAbort(signal, (reason) => parked.fail(reason));
 *     return await parked.promise;
 */
import { NEVER } from './never.ts';

export function onAbort(signal: AbortSignal, listener: (reason: unknown) => void): Disposable {
  if (signal === NEVER) return NOTHING;
  if (signal.aborted) {
    listener(signal.reason);
    return NOTHING;
  }
  return new AbortRegistration(signal, listener);
}

const NOTHING: Disposable = { [Symbol.dispose]: () => undefined };

/** The listener object itself: a registration costs one allocation besides the caller's closure. */
class AbortRegistration implements Disposable {
  readonly #signal: AbortSignal;
  /**
   * Undefined after disposal: a removed listener of a signal still refers to the listeners that were added after it, so all
   * that they reach would survive minor garbage collections.
   */
  #listener: ((reason: unknown) => void) | undefined;

  constructor(signal: AbortSignal, listener: (reason: unknown) => void) {
    this.#signal = signal;
    this.#listener = listener;
    signal.addEventListener('abort', this, { once: true });
  }

  handleEvent(): void {
    const listener = this.#listener;
    this.#listener = undefined;
    listener?.(this.#signal.reason);
  }

  [Symbol.dispose](): void {
    if (this.#listener === undefined) return;
    this.#listener = undefined;
    this.#signal.removeEventListener('abort', this);
  }
}

/** Resolves when the signal aborts. */
export async function untilAborted(signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => void onAbort(signal, () => resolve()));
}
