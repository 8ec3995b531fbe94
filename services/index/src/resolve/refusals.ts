/** The refusals that a lookup ends with. */
import { RonError } from '@ron/kernel';
import type { ProvidersFound } from '../dht/dht.ts';

/** Why a target has no answer, in the member `reason` of the problem. */
export type MissingReason =
  | 'none_has_it'
  | 'unknown_name'
  | 'untrusted_name'
  | 'removed'
  | 'expired'
  | 'moved_too_often';

const DETAIL: Readonly<Record<MissingReason, string>> = {
  none_has_it: 'no known node has this object',
  unknown_name: 'no record of this name is known',
  untrusted_name: 'no key is trusted for this label; add the key to the trust list, or resolve name:<label>@<key>',
  removed: 'the owner of this name removed it',
  expired: 'the record of this name has expired; its owner must renew it',
  moved_too_often: 'this name was moved more than 4 times',
};

const UNANSWERED = {
  deadline: { code: 'timeout', detail: 'no peer answered within the budget' },
  breakers_open: { code: 'breaker_open', detail: 'the breakers of all peers are open' },
  no_route: { code: 'no_route', detail: 'no peer of the network can be reached' },
} as const;

/** `complete`: false if answers of peers are missing; then the refusal is not cached. */
export function missing(reason: MissingReason, complete = true): RonError {
  return new RonError('not_found', DETAIL[reason], { reason, details: { reason, complete } });
}

/**
 * The refusal for a lookup that found nothing in the database and nothing in the DHT. A database that failed may have it, so
 * its error is the refusal.
 */
export function nothingFound(
  empty: NonNullable<ProvidersFound['empty']>,
  complete: boolean,
  reason: MissingReason,
  failure?: RonError,
): RonError {
  if (empty === 'none_has_it') return failure ?? missing(reason, complete);
  const { code, detail } = UNANSWERED[empty];
  return new RonError(code, detail, { op: 'resolve' });
}
