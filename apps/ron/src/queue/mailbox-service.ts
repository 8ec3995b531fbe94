/** Access to mailbox for commands. */
import { MailboxClient, type TransportInit } from '@ron/client';
import { isTopic, MAILBOX_LIMITS } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { QueueInvocation } from './queue-options.ts';
import { withClient } from '../service-client.ts';
import type { ResolvedService } from '../resolve-service.ts';

/** Each call of `work` passes a signal: the client has none, so that it can return messages after Ctrl-C. */
export function withMailbox<T>(
  { values, io, signal }: Pick<QueueInvocation, 'values' | 'io' | 'signal'>,
  work: (client: MailboxClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  const open = (init: TransportInit): MailboxClient => {
    const { signal: _, ...rest } = init;
    return new MailboxClient(rest);
  };
  return withClient('mailbox', open, values, io, signal, work);
}

export function topicArg(text: string): string {
  if (isTopic(text)) return text;
  const rule = `use words of a-z, 0-9 and _, joined by dots, at most ${MAILBOX_LIMITS.topic_chars} characters, not "send"`;
  throw new CliError('usage', `${JSON.stringify(text)} cannot be the name of a topic: ${rule}`);
}

/** `1 message`, `2 messages`. */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;
