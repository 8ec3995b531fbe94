/**
 * Restarts a service of the own node: stops it, so that `ron up` starts it again.
 *
 * Bound: waits `RESTART_MS` for the successor. Cancellation: by the signal; the service restarts nevertheless.
 */
import { Deadline, sleep } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { homeOf, isAlive, readState, socketUrl } from './home.ts';
import type { Io } from './io.ts';
import { readinessOf } from './readiness.ts';
import type { ConnectionValues } from './resolve-service.ts';

const RESTART_MS = 60_000;
const POLL_MS = 200;

/** Resolves to whether the successor is ready. False if the service is not one of the own node, or takes too long. */
export async function restartService(
  service: Service,
  values: ConnectionValues,
  io: Io,
  signal: AbortSignal,
  lane?: string,
): Promise<boolean> {
  if (values.url !== undefined || io.env['RON_URL']) return false;
  const home = homeOf(values, io);
  const state = await readState(home);
  const pid = state?.pids[service];
  if (state === undefined || !isAlive(state.pid) || pid === undefined) return false;
  process.kill(pid, 'SIGTERM');
  using due = Deadline.after('restart', RESTART_MS, { signal });
  while (due.remaining_ms > POLL_MS) {
    await sleep(POLL_MS, signal, 'restart');
    const ready = isAlive(pid)
      ? undefined
      : await readinessOf(socketUrl(home, service), signal, lane).catch(() => undefined);
    if (ready?.isReady === true) return true;
  }
  return false;
}
