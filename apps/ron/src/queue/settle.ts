/**
 * `ron queue ack`, `nack` and `extend`: settle leases by their tokens.
 *
 * Tokens are arguments, or with `-` the lines of standard input: tokens, or the JSON of `ron queue receive --json`.
 */
import { createInterface } from 'node:readline';
import { addAbortSignal } from 'node:stream';
import type { MailboxClient } from '@ron/client';
import { MAILBOX_LIMITS, type NackRequest, type TokenResult } from '@ron/proto';
import { usage } from '../args.ts';
import { CliError } from '../exits.ts';
import { durationArg } from '../quantity-args.ts';
import { counted, topicArg, withMailbox } from './mailbox-service.ts';
import type { QueueInvocation } from './queue-options.ts';

type Settle = (client: MailboxClient, topic: string, tokens: readonly string[]) => Promise<readonly TokenResult[]>;

export async function ack(invocation: QueueInvocation, args: readonly string[]): Promise<void> {
  const { signal } = invocation;
  await settle(invocation, args, 'acked', (client, topic, tokens) => client.ack(topic, tokens, { signal }));
}

export async function nack(invocation: QueueInvocation, args: readonly string[]): Promise<void> {
  const { values, signal } = invocation;
  const { delay, error, dead } = values;
  if (dead === true && delay !== undefined) throw usage({ name: 'queue' }, 'Specify --delay or --dead, not both');
  const how: NackRequest = {
    ...(delay !== undefined && { delay_ms: durationArg('--delay', delay, 0, MAILBOX_LIMITS.delay_ms) }),
    ...(error !== undefined && { error }),
    ...(dead !== undefined && { dead }),
  };
  const done = dead === true ? 'made dead letters' : 'returned';
  await settle(invocation, args, done, (client, topic, tokens) => client.nack(topic, tokens, how, { signal }));
}

export async function extend(invocation: QueueInvocation, args: readonly string[]): Promise<void> {
  const { values, signal } = invocation;
  const { visibility_ms_min, visibility_ms_max, visibility_ms_default } = MAILBOX_LIMITS;
  const visibility_ms =
    values.visibility === undefined
      ? visibility_ms_default
      : durationArg('--visibility', values.visibility, visibility_ms_min, visibility_ms_max);
  await settle(invocation, args, 'extended', (client, topic, tokens) =>
    client.extend(topic, tokens, visibility_ms, { signal }),
  );
}

/** Fails with exit code 1 if a token is not `ok`; the others are settled. */
async function settle(
  invocation: QueueInvocation,
  [name, ...given]: readonly string[],
  done: string,
  call: Settle,
): Promise<void> {
  const topic = topicArg(name!);
  const { io } = invocation;
  const counts: Record<TokenResult, number> = { ok: 0, stale: 0, unknown: 0 };
  await withMailbox(invocation, async (client) => {
    for await (const tokens of batches(given.length === 1 && given[0] === '-' ? tokensOfInput(invocation) : given)) {
      for (const [at, result] of (await call(client, topic, tokens)).entries()) {
        counts[result] += 1;
        if (io.json) io.result('', { token: tokens[at], result });
      }
    }
  });
  if (!io.json) io.result(`${done} ${counted(counts.ok, 'message')}`, {});
  const { stale, unknown } = counts;
  if (stale + unknown === 0) return;
  const parts = [
    ...(stale > 0 ? [`${stale} stale: the message was delivered again, or is settled`] : []),
    ...(unknown > 0 ? [`${unknown} unknown: not a token of ${topic}`] : []),
  ];
  throw new CliError('failed', parts.join('; '), stale > 0 ? 'stale' : 'unknown');
}

async function* batches(tokens: AsyncIterable<string> | Iterable<string>): AsyncGenerator<readonly string[]> {
  let batch: string[] = [];
  for await (const token of tokens) {
    batch.push(token);
    if (batch.length < MAILBOX_LIMITS.batch_messages) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

async function* tokensOfInput({ signal }: QueueInvocation): AsyncGenerator<string> {
  const lines = createInterface({ input: addAbortSignal(signal, process.stdin), crlfDelay: Infinity });
  let number = 0;
  for await (const line of lines) {
    number += 1;
    if (line.trim() !== '') yield tokenOf(line.trim(), number);
  }
}

function tokenOf(line: string, number: number): string {
  if (!line.startsWith('{')) return line;
  try {
    const { token } = JSON.parse(line) as { token?: unknown };
    if (typeof token === 'string') return token;
  } catch {
    // Reported below.
  }
  throw new CliError('data', `standard input, line ${number}: the JSON has no token`);
}
