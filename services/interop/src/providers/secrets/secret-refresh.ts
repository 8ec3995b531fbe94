/**
 * The task `secret_refresh`: unwraps secrets that kms could not unwrap before, removes ended ones, and stores secrets as configured.
 *
 * Contract: after a failure it tries again with a growing pause; a provider that fails does not block the others. An ended secret
 * is not accepted anyway; its bytes are removed from the disk within `CHECK_MS`, or once kms and the disk answer.
 * Bound: one provider at a time; `FAILURES_MAX` failures in one round. Cancellation: ends with `stopping`.
 */
import { sched, type Notify } from '@ron/kernel';

export interface RefreshedProviders {
  readonly changed: Notify;
  readonly next_end_ms: number;
  due(): readonly string[];
  reconcile(name: string, signal: AbortSignal): Promise<void>;
}

/** The wall clock may jump, so ends are compared at least so often. */
const CHECK_MS = 60_000;
const PAUSE_MS_MIN = 250;
const PAUSE_MS_MAX = 30_000;
const FAILURES_MAX = 3;

export async function refreshSecrets(providers: RefreshedProviders, stopping: AbortSignal): Promise<void> {
  let rounds = 0;
  try {
    for (;;) {
      const isDone = await reconcileDue(providers, rounds, stopping);
      rounds = isDone ? 0 : rounds + 1;
      const within_ms = isDone ? untilNextEnd_ms(providers) : pause_ms(rounds);
      // [interop I-5] A stop ends the wait.
      await providers.changed.notified(stopping, { within_ms });
    }
  } catch (error) {
    if (!stopping.aborted) throw error;
  }
}

/** One round, begun at another provider each time. False if one failed. */
export async function reconcileDue(
  providers: RefreshedProviders,
  round: number,
  signal: AbortSignal,
): Promise<boolean> {
  const due = providers.due();
  let failures = 0;
  for (const at of due.keys()) {
    if (failures >= FAILURES_MAX) break;
    try {
      await providers.reconcile(due[(at + round) % due.length]!, signal);
    } catch {
      signal.throwIfAborted();
      // The provider itself states the problem.
      failures += 1;
    }
  }
  return failures === 0;
}

const pause_ms = (rounds: number): number =>
  Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(rounds - 1, 10)) * (0.8 + sched.random() * 0.4);

const untilNextEnd_ms = ({ next_end_ms }: RefreshedProviders): number =>
  Math.min(CHECK_MS, Math.max(1, next_end_ms - sched.wall_ms()));
