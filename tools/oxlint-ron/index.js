/**
 * The rules of the kernel that a type checker cannot see, as an oxlint plugin.
 *
 * Promise: each rule reports at the node that has to change and says what to write instead.
 * It is JavaScript because oxlint loads plugins with the Node that the caller happens to run.
 */
import { boundaries } from './boundaries.js';
import { noAwaitInGuard } from './no-await-in-guard.js';
import { noBlockingCalls } from './no-blocking-calls.js';
import { noRawTimers } from './no-raw-timers.js';
import { noUnboundedQueue } from './no-unbounded-queue.js';

export default {
  meta: { name: 'ron' },
  rules: {
    'no-await-in-guard': noAwaitInGuard,
    'no-blocking-calls': noBlockingCalls,
    'no-raw-timers': noRawTimers,
    'no-unbounded-queue': noUnboundedQueue,
    boundaries,
  },
};
