/**
 * `POST /v1/passport/exchange` with the capability of interop.
 *
 * Contract: the capability is narrowed to each request, and read anew after passport refused it. The answer is checked: a token
 * that is not for storage, or a malformed verdict, is an error of passport. `problem` says why the capability of interop cannot
 * be used; its clients get a text without paths.
 * Bound: one try; the caller retries. Cancellation: by the signal.
 */
import { inspectToken } from '@ron/auth';
import { narrowed } from '@ron/auth/narrowed';
import { AnswerError, PassportClient, type AuthorizedRequest } from '@ron/client';
import type { Reach } from '@ron/client/node';
import { isRonError, POLICIES, RonError } from '@ron/kernel';
import type { ExchangeInit, ExchangeRefusal, ExchangeVerdict } from '@ron/proto';
import type { CapabilityFile } from '../upstreams/capability-file.ts';

export interface PassportExchangeInit {
  readonly way: Reach;
  /** With scope `passport:exchange`. */
  readonly file: Pick<CapabilityFile, 'token' | 'current' | 'forget'>;
  readonly connect_ms: number;
}

export class PassportExchange {
  readonly #file: PassportExchangeInit['file'];
  readonly #client: PassportClient;
  #problem: string | undefined;

  constructor({ way, file, connect_ms }: PassportExchangeInit) {
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(file.current, { audience: 'passport', body });
    this.#file = file;
    this.#client = new PassportClient({ ...way, authorize, connect_ms, policy: POLICIES.once });
  }

  /** For the gate `passport`: at the last exchange. */
  get problem(): string | undefined {
    return this.#problem;
  }

  async exchange(request: ExchangeInit, signal: AbortSignal): Promise<ExchangeVerdict> {
    await this.#readCapability();
    try {
      const verdict = soundVerdict(await this.#client.exchange(request, signal));
      this.#problem = undefined;
      return verdict;
    } catch (error) {
      if (!(error instanceof AnswerError) || error.http_status >= 500 || error.http_status === 429) throw error;
      this.#file.forget();
      // The token of the client is judged in the verdict: a refusal of the request concerns this node.
      throw this.#unusable(`passport refuses the capability of interop: ${error.message}`, error);
    }
  }

  async #readCapability(): Promise<void> {
    try {
      await this.#file.token();
    } catch (error) {
      const why = isRonError(error) ? error.message : 'it is unreadable';
      throw this.#unusable(`interop has no capability for passport: ${why}`, error);
    }
  }

  #unusable(problem: string, cause: unknown): RonError {
    this.#problem = problem;
    return new RonError('not_ready', 'interop has no valid capability for passport', {
      op: 'exchange',
      reason: 'DOWNSTREAM_UNAVAILABLE',
      cause,
    });
  }
}

function soundVerdict(verdict: ExchangeVerdict | null): ExchangeVerdict {
  if (verdict?.ok === true && Number.isSafeInteger(verdict.expires_ms)) {
    requireForStorage(verdict.token);
    return verdict;
  }
  if (verdict?.ok === false && isRefusal(verdict)) return verdict;
  throw new RonError('integrity', 'passport sent a malformed verdict', { op: 'exchange' });
}

function isRefusal({ code, cause, reason }: Partial<ExchangeRefusal>): boolean {
  const isKnown = code === 'unauthorized' || code === 'forbidden';
  const isCause = cause === undefined || cause === 'expired' || cause === 'revoked';
  return isKnown && isCause && typeof reason === 'string';
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
