/**
 * The part of the kernel that also runs in browsers: it imports neither Node nor another package. The client and every
 * command that must start quickly import it instead of the whole kernel.
 */
export { releaseBytes } from './bytes/release-bytes.ts';
export { assert, ERRORS, isRonError, RonError, type ErrorCode } from './errors.ts';
export { isTransient, jittered, POLICIES, type RetryPolicy } from './retry/retry-policy.ts';
export { idempotent, retry } from './retry/retry.ts';
export { sched, sleep, type Parked, type Timer } from './sched.ts';
export { onAbort } from './sync/on-abort.ts';
export { Deadline } from './time/deadline.ts';
