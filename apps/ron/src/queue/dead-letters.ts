/** `ron queue dlq`, `replay` and `delete`: dead letters of a topic. */
import type { MailboxClient } from '@ron/client';
import { MAILBOX_LIMITS, type DeadLetterDto, type DeadSelection } from '@ron/proto';
import { usage } from '../args.ts';
import { confirm } from '../confirm.ts';
import { columns, humanSize } from '../format.ts';
import { dateOf } from '../names/show-name.ts';
import { ProgressLine } from '../progress-line.ts';
import { numberArg } from '../quantity-args.ts';
import { counted, topicArg, withMailbox } from './mailbox-service.ts';
import type { QueueInvocation } from './queue-options.ts';

const COUNT_MAX = 1_000_000;

/** Prints the dead letters, the oldest first. */
export async function list(invocation: QueueInvocation, [name]: readonly string[]): Promise<void> {
  const { io, signal, values } = invocation;
  const topic = topicArg(name!);
  const max = values.max === undefined ? MAILBOX_LIMITS.page : numberArg('--max', values.max, 1, COUNT_MAX);
  let after = values.after === undefined ? 0 : numberArg('--after', values.after, 0, Number.MAX_SAFE_INTEGER);
  await withMailbox(invocation, async (client) => {
    for (let left = max; ;) {
      const limit = Math.min(left, MAILBOX_LIMITS.page);
      const { dead, next } = await client.deadLetters(topic, { after, limit }, { signal });
      for (const letter of dead) io.result(deadText(letter), letter);
      await io.flushed();
      left -= dead.length;
      if (next === undefined) break;
      after = next;
      if (left > 0) continue;
      return io.note(`there are more: continue with --after ${next}`);
    }
    if (!io.json && max > 0) io.note(`these are all dead letters of ${topic}`);
  });
}

function deadText(letter: DeadLetterDto): string {
  const { seq, id, reason, attempts, error, key, bytes, sent_ms, dead_ms } = letter;
  const rows: [string, string][] = [
    [`seq ${seq}`, `${id}, ${reason} after ${counted(attempts, 'attempt')}, ${humanSize(bytes)}`],
    ['sent', `${dateOf(sent_ms / 1000)}, dead since ${dateOf(dead_ms / 1000)}`],
    ...(key === undefined ? [] : [['key', key] satisfies [string, string]]),
    ...(error === undefined ? [] : [['last error', error] satisfies [string, string]]),
  ];
  return `${columns(rows)}\n`;
}

/** Why a selected dead letter was left out. */
const MISSES = {
  replayed: 'they are damaged, or not among the dead letters',
  deleted: 'they are not among the dead letters',
} as const;

interface Step {
  readonly done: number;
  readonly left: number;
}

/** Sends dead letters again, as new messages. */
export async function replay(invocation: QueueInvocation, args: readonly string[]): Promise<void> {
  const { signal } = invocation;
  await onDead(invocation, args, 'replayed', async (client, topic, which) => {
    const { replayed, left } = await client.replayDead(topic, which, { signal });
    return { done: replayed, left };
  });
}

export async function remove(invocation: QueueInvocation, args: readonly string[]): Promise<void> {
  const { signal } = invocation;
  selectionOf(invocation, args.slice(1));
  const which = args.length > 1 ? counted(args.length - 1, 'dead letter') : 'Dead letters';
  await confirm(invocation, 'queue', `${which} of ${topicArg(args[0]!)} will be deleted for good.`);
  await onDead(invocation, args, 'deleted', async (client, topic, selection) => {
    const { deleted, left } = await client.deleteDead(topic, selection, { signal });
    return { done: deleted, left };
  });
}

/**
 * Repeats `step` for the dead letters of `seqs`, or for the `total` oldest, a page at a time. Mailbox may apply a step to a part of
 * the page only: the step is repeated until it does nothing. A repeated step skips the dead letters that are done.
 */
export async function* inSteps(
  total: number,
  seqs: readonly number[] | undefined,
  step: (which: DeadSelection) => Promise<Step>,
): AsyncGenerator<Step, void, void> {
  const { page } = MAILBOX_LIMITS;
  for (let at = 0; at < total; at += page) {
    const end = Math.min(at + page, total);
    for (let done = at; done < end;) {
      const last = await step(seqs === undefined ? { limit: end - done } : { seqs: seqs.slice(at, end) });
      yield last;
      if (last.left === 0 || (last.done === 0 && seqs === undefined)) return;
      if (last.done === 0) break;
      done += last.done;
    }
  }
}

/** Applies `step` to the selected dead letters. */
async function onDead(
  invocation: QueueInvocation,
  [name, ...given]: readonly string[],
  verb: keyof typeof MISSES,
  step: (client: MailboxClient, topic: string, which: DeadSelection) => Promise<Step>,
): Promise<void> {
  const { io, signal } = invocation;
  const topic = topicArg(name!);
  const { seqs, max } = selectionOf(invocation, given);
  const { done, left, wanted } = await withMailbox(invocation, async (client) => {
    // Replayed messages may die again meanwhile: never more than there are now.
    const dead = seqs === undefined ? (await client.topic(topic, { signal })).ledger.dead : seqs.length;
    const total = Math.min(dead, max);
    using line = new ProgressLine(`${topic}: ${verb}`, io, (amount) => counted(amount, 'dead letter'));
    let progress: Step = { done: 0, left: dead };
    try {
      for await (const last of inSteps(total, seqs, (which) => step(client, topic, which))) {
        progress = { done: progress.done + last.done, left: last.left };
        line.update({ done_bytes: progress.done, total_bytes: total });
      }
    } catch (error) {
      if (progress.done > 0) io.note(`${verb} ${counted(progress.done, 'dead letter')} before the error`);
      throw error;
    }
    return { ...progress, wanted: total };
  });
  if (done < wanted) io.note(`${wanted - done} of ${wanted} were not ${verb}: ${MISSES[verb]}; see \`ron queue dlq\``);
  io.result(`${verb} ${counted(done, 'dead letter')}, ${left} left`, { topic, [verb]: done, left });
}

function selectionOf(
  { values }: QueueInvocation,
  given: readonly string[],
): { readonly seqs: readonly number[] | undefined; readonly max: number } {
  const ways = [given.length > 0, values.all === true, values.max !== undefined].filter(Boolean).length;
  if (ways !== 1) throw usage({ name: 'queue' }, 'Specify sequence numbers, --max N or --all');
  const seqs = given.map((text) => numberArg('SEQ', text, 0, Number.MAX_SAFE_INTEGER));
  const max = values.max === undefined ? COUNT_MAX : numberArg('--max', values.max, 1, COUNT_MAX);
  return { seqs: given.length > 0 ? seqs : undefined, max };
}
