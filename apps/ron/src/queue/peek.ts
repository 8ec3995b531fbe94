/** `ron queue peek`: prints visible messages without a lease. */
import { MAILBOX_LIMITS } from '@ron/proto';
import { numberArg } from '../quantity-args.ts';
import { topicArg, withMailbox } from './mailbox-service.ts';
import { messageOutput } from './message-output.ts';
import type { QueueInvocation } from './queue-options.ts';

export async function peek(invocation: QueueInvocation, [name]: readonly string[]): Promise<void> {
  const { io, signal, values } = invocation;
  const topic = topicArg(name!);
  const limit = values.max === undefined ? 1 : numberArg('--max', values.max, 1, MAILBOX_LIMITS.page);
  const output = await messageOutput(invocation);
  const messages = await withMailbox(invocation, (client) => client.peek(topic, limit, { signal }));
  for (const message of messages) await output.write(message);
  if (messages.length === 0) io.note(`no message is visible in ${topic}`);
}
