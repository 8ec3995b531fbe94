/** The wait before a message that failed is delivered again: uniform in [0, min(60 s, 1 s * 2^n)), n failures before this one. */
import { sched } from '@ron/kernel';

const BACKOFF_MS = 1000;
const BACKOFF_MS_MAX = 60_000;

/** `attempts`: deliveries so far, with the one that failed. */
// [mailbox I-7]
export const backoff_ms = (attempts: number): number =>
  sched.random() * Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** Math.max(0, attempts - 1));
