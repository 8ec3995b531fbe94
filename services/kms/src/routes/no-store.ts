import type { AnswerHeaders } from '@ron/ingress';

/** For responses with signatures and secrets of the caller: caches must not store them. */
export const NO_STORE: AnswerHeaders = Object.freeze({ 'Cache-Control': 'no-store' });
