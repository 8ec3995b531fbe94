/**
 * `POST /v1/passport/exchange` with the capability of interop.
 *
 * Contract: the capability is narrowed to each request, and read anew after passport refused it. The answer is checked: a token
 * that is not for storage is an error of passport.
 * Bound: one try; the caller retries. Cancellation: by the signal.
 */
import { inspectToken } from '@ron/auth';
import { narrowed } from '@ron/auth/narrowed';
import { AnswerError, PassportClient, type AuthorizedRequest } from '@ron/client';
import type { Reach } from '@ron/client/node';
import { isRonError, POLICIES, RonError } from '@ron/kernel';
import type { ExchangeInit, ExchangeVerdict } from '@ron/proto';
import type { CapabilityFile } from '../upstreams/capability-file.ts';

/** One try. */
export type ExchangeOnce = (request: ExchangeInit, signal: AbortSignal) => Promise<ExchangeVerdict>;

export interface PassportExchangeInit {
  readonly way: Reach;
  /** With scope `passport:exchange`. */
  readonly file: Pick<CapabilityFile, 'token' | 'current' | 'forget'>;
  readonly connect_ms: number;
}

export function exchangeByPassport({ way, file, connect_ms }: PassportExchangeInit): ExchangeOnce {
  const authorize = ({ body }: AuthorizedRequest): string => narrowed(file.current, { audience: 'passport', body });
  const client = new PassportClient({ ...way, authorize, connect_ms, policy: POLICIES.once });
  return async (request, signal) => {
    await readable(file);
    try {
      const verdict = await client.exchange(request, signal);
      if (verdict.ok) requireForStorage(verdict.token);
      return verdict;
    } catch (error) {
      if (!(error instanceof AnswerError) || error.http_status >= 500 || error.http_status === 429) throw error;
      file.forget();
      // The token of the client is judged in the verdict: a refusal of the request concerns this node.
      throw ofThisNode(`passport refuses the capability of interop: ${error.message}`, error);
    }
  };
}

async function readable(file: PassportExchangeInit['file']): Promise<void> {
  try {
    await file.token();
  } catch (error) {
    throw ofThisNode(
      `interop has no capability for passport: ${isRonError(error) ? error.message : 'unreadable'}`,
      error,
    );
  }
}

function requireForStorage(token: unknown): void {
  let audience: string | undefined;
  try {
    audience = typeof token === 'string' ? inspectToken(token).audience : undefined;
  } catch {
    // Malformed, as below.
  }
  if (audience !== 'storage')
    throw new RonError('integrity', 'passport sent no capability for storage', { op: 'exchange' });
}

function ofThisNode(message: string, cause: unknown): RonError {
  return new RonError('not_ready', message, { op: 'exchange', reason: 'DOWNSTREAM_UNAVAILABLE', cause });
}
