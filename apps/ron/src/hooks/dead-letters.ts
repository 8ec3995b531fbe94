/** `ron hooks dlq` and `replay`: the dead letters of the topic of a provider. */
import { usage } from '../args.ts';
import * as dead from '../queue/dead-letters.ts';
import type { QueueInvocation } from '../queue/queue-options.ts';
import type { HooksInvocation } from './hooks-options.ts';
import { providerArg, withInterop } from './interop-service.ts';

export async function list(invocation: HooksInvocation, [name]: readonly string[]): Promise<void> {
  await dead.list(...(await ofTopic(invocation, name!)));
}

export async function replay(invocation: HooksInvocation, [name, ...seqs]: readonly string[]): Promise<void> {
  const [queue, topic] = await ofTopic(invocation, name!);
  await dead.replay(queue, [...topic, ...seqs]);
}

/** Two services are called, so a URL cannot name both. */
async function ofTopic(invocation: HooksInvocation, name: string): Promise<[QueueInvocation, readonly string[]]> {
  const { values, io, signal } = invocation;
  if (values.url !== undefined || (io.env['RON_URL'] ?? '') !== '')
    throw usage(
      { name: 'hooks' },
      'dlq and replay call mailbox too: name the node with --dir, without --url and RON_URL',
    );
  const { topic } = await withInterop(invocation, (client) => client.provider(providerArg(name), { signal }));
  const { dir, 'capability-file': capability_file, max, after, all } = values;
  const own = { dir, 'capability-file': capability_file, max, after, all };
  return [{ values: own, args: [], io, signal }, [topic]];
}
