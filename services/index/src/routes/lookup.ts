/** How the routes wait for a lookup. */
import { RonError, isRonError, type Deadline } from '@ron/kernel';
import { checkTarget, type Target } from '@ron/proto';
import type { Resolving } from '../resolve/resolving.ts';
import type { LookupRequest } from '../resolve/lookups.ts';

export interface LookupRouteInit {
  readonly resolving: Resolving;
  /** Called for each request that gets 504. */
  readonly onDeadlineHit: () => void;
}

interface WaitingContext {
  readonly deadline: Deadline;
  readonly ip: string;
  park<T>(wait: () => Promise<T>): Promise<T>;
}

/** Throws `bad_request` with the reason. */
export function targetIn(text: string): Target {
  const result = checkTarget(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.target;
}

/** Waits parked, within the waiters of the route and the deadline of the request. */
export async function waitFor<T>(
  { resolving, onDeadlineHit }: LookupRouteInit,
  context: WaitingContext,
  wanted: Pick<LookupRequest, 'lane' | 'target' | 'mode'>,
  begin: (request: LookupRequest) => Promise<T>,
): Promise<T> {
  const { deadline, ip } = context;
  const waiters = wanted.lane === '/resolve' ? resolving.resolve_waiters : resolving.providers_waiters;
  try {
    return await waiters.wait(() => context.park(() => begin({ ...wanted, deadline, ip })));
  } catch (error) {
    if (isRonError(error, 'timeout')) onDeadlineHit();
    throw error;
  }
}
