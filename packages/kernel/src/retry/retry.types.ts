/**
 * Types that the compiler must refuse and accept as work to retry. Checked by `tsc`, never run: a refusal that is missing
 * makes its `@ts-expect-error` an error.
 */
import { idempotent, retry, type Idempotent, type RetryInit } from './retry.ts';

export async function refused(init: RetryInit, send: () => Promise<number>): Promise<void> {
  // @ts-expect-error a plain function may have side effects
  await retry(send, init);
  // @ts-expect-error a look-alike is not marked
  await retry({ op: 'send', work: send }, init);
  // @ts-expect-error nor is one that spells the mark itself
  await retry({ op: 'send', work: send, [Symbol('idempotent')]: true }, init);
  // @ts-expect-error no policy
  await retry(idempotent('send', send), { deadline: init.deadline });
  // @ts-expect-error no deadline
  await retry(idempotent('send', send), { policy: init.policy });
  // @ts-expect-error work must be asynchronous
  idempotent('send', () => 1);
}

export async function accepted(init: RetryInit, read: (signal: AbortSignal) => Promise<number>): Promise<number> {
  const work: Idempotent<number> = idempotent('read', read);
  return retry(work, init);
}
