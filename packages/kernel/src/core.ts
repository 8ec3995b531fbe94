/**
 * The part of the kernel that runs anywhere, browsers included: it imports nothing of Node and no package. The client
 * stands on it, and so does every command that should start at once.
 */
export * from './deadline.ts';
export * from './errors.ts';
export * from './release-bytes.ts';
export * from './retry/retry-policy.ts';
export * from './retry/retry.ts';
export * from './sched.ts';
