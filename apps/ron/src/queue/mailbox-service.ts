/**
 * Access to mailbox for commands.
 *
 * Most calls are sent once, because a repeated one could take effect twice. A mailbox that `ron up` restarts is therefore
 * awaited before the first call, for at most `RESTART_MS`. A broken ledger is reported at once.
 */
import { MailboxClient, TRANSPORT_DEFAULTS, type TransportInit } from '@ron/client';
import { Deadline, sleep } from '@ron/kernel/core';
import { isTopic, MAILBOX_LIMITS } from '@ron/proto';
import { CliError } from '../exits.ts';
import { readinessOf } from '../readiness.ts';
import type { ResolvedService } from '../resolve-service.ts';
import { withClient } from '../service-client.ts';
import type { QueueInvocation } from './queue-options.ts';

const RESTART_MS = 15_000;
const POLL_MS = 200;
/** The gate that does not open by itself, as in `ledger (record 4 is missing)`. */
const LEDGER = /\bledger \(/;

/** Each call of `work` passes a signal: the client has none, so that it can return messages after Ctrl-C. */
export function withMailbox<T>(
  { values, io, signal }: Pick<QueueInvocation, 'values' | 'io' | 'signal'>,
  work: (client: MailboxClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  const open = (init: TransportInit): MailboxClient => {
    const { signal: _, ...rest } = init;
    return new MailboxClient({ ...rest, policy: TRANSPORT_DEFAULTS.policy });
  };
  return withClient('mailbox', open, values, io, signal, async (client, resolved) => {
    if (resolved.supervised) await awaitRestart(resolved, signal);
    return await work(client, resolved);
  });
}

/** Returns if mailbox is ready, or the time is up: the error of the call that follows explains it. */
async function awaitRestart({ url, pin }: ResolvedService, signal: AbortSignal): Promise<void> {
  using due = Deadline.after('queue.restart', RESTART_MS, { signal });
  while (due.remaining_ms > POLL_MS) {
    const found = await readinessOf(url, signal, undefined, pin).catch(() => undefined);
    if (found?.isReady === true) return;
    if (found !== undefined && LEDGER.test(found.reasons))
      throw new CliError('unavailable', `mailbox is not ready: ${found.reasons}`, 'not_ready');
    await sleep(POLL_MS, signal, 'queue.restart');
  }
}

export function topicArg(text: string): string {
  if (isTopic(text)) return text;
  const rule = `use words of a-z, 0-9 and _, joined by dots, at most ${MAILBOX_LIMITS.topic_chars} characters, not "send"`;
  throw new CliError('usage', `${JSON.stringify(text)} cannot be the name of a topic: ${rule}`);
}

/** `1 message`, `2 messages`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;
