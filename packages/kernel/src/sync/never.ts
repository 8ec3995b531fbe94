/**
 * A signal that never aborts, for work that is bounded in another way. There is one such object, so code that is given
 * it need not register a listener.
 */
export const NEVER: AbortSignal = new AbortController().signal;
