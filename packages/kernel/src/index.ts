/** Concurrency primitives. Each file states its contract; `sched.ts` is the only seam to clock, timers and randomness. */
export { BufferPool } from './bytes/buffer-pool.ts';
export { releaseBytes } from './bytes/release-bytes.ts';
export { Broadcast } from './channels/broadcast.ts';
export { Mpsc } from './channels/mpsc.ts';
export { Snapshot } from './channels/snapshot.ts';
export { Watch, WatchReceiver } from './channels/watch.ts';
export { assert, ERRORS, isRonError, RonError, type ErrorCode, type RonErrorInit } from './errors.ts';
export type { Batch, Piece } from './fair/batch-job.ts';
export { BatchQueue } from './fair/batch-queue.ts';
export { FairEntry, FairQueue, type FairQueueInit } from './fair/fair-queue.ts';
export { FairSemaphore } from './fair/fair-semaphore.ts';
export { TurnBudget, type TurnBudgetInit } from './fair/turn-budget.ts';
export { addressGroup, type ClientAddress } from './overload/admission-addresses.ts';
export { Admission, type Caller, type EnterResult } from './overload/admission.ts';
export { Breaker, verdictOf, type BreakerInit, type BreakerState, type Verdict } from './overload/breaker.ts';
export { Brownout, BROWNOUT_DEFAULTS, type BrownoutInit } from './overload/brownout.ts';
export { LatencyWindow, type LatencyWindowInit } from './overload/latency-window.ts';
export { RollingWindow, type RollingWindowInit } from './overload/rolling-window.ts';
export { TokenBucket } from './overload/token-bucket.ts';
export { RetryBudget } from './retry/retry-budget.ts';
export {
  isTransient,
  jittered,
  liveFill,
  POLICIES,
  type LiveFillInit,
  type RetryPolicy,
} from './retry/retry-policy.ts';
export { idempotent, retry, type RetryInit } from './retry/retry.ts';
export { installSched, realSched, sched, sleep, touch, type Parked, type Timer } from './sched.ts';
export { Cell } from './sync/cell.ts';
export { CoalescedCall } from './sync/coalesced-call.ts';
export { KeyedMutex } from './sync/keyed-mutex.ts';
export { LongPoll, type LongPollInit } from './sync/long-poll.ts';
export { Mutex } from './sync/mutex.ts';
export { NEVER } from './sync/never.ts';
export { Notify } from './sync/notify.ts';
export { onAbort, untilAborted } from './sync/on-abort.ts';
export { orAborted } from './sync/or-aborted.ts';
export { SingleFlight, type Flight, type SingleFlightInit } from './sync/single-flight.ts';
export { WaitList } from './sync/wait-list.ts';
export { LATE, withTimeout } from './sync/with-timeout.ts';
export { BlockingPool, endingThreads } from './tasks/blocking.ts';
export { Supervisor, type StopReport, type SupervisorEvent } from './tasks/supervisor.ts';
export type { TaskContext, TaskTotals } from './tasks/task-record.ts';
export { Deadline, type DeadlineInit } from './time/deadline.ts';
export { laneInit, requireLanes, type LaneDeclaration, type LaneInit } from './work/work-lane.ts';
export { WorkQueue } from './work/work-queue.ts';
