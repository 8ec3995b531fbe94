/** The capability of a request that the listener has accepted. Only for its exchange: it is never forwarded or kept. */
import { bearerToken } from '@ron/auth';
import type { RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';

export function bearerOf({ headers }: Pick<RouteContext, 'headers'>): string {
  const token = bearerToken(headers.authorization);
  if (token === undefined) throw new RonError('unauthorized', 'a capability is required');
  return token;
}
