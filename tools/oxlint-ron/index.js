/**
 * An oxlint plugin with rules of this project that types cannot express.
 *
 * Contract: each rule reports the node that has to change and names the alternative.
 * Written in JavaScript, because oxlint loads plugins with the Node of its caller, which may not support TypeScript.
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
