/**
 * A signal that never aborts, for work that is bounded by something else. There is one of it: whoever is given this one
 * need not listen.
 */
export const NEVER: AbortSignal = new AbortController().signal;
