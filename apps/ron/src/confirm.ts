/**
 * Asks before a destructive operation.
 *
 * Contract: `--yes` answers for the user. Without it, a terminal asks, and any answer but `yes` or the end of the input ends
 * the command. Without a terminal the command is refused. Cancellation: by the signal.
 */
import { createInterface } from 'node:readline/promises';
import { usage } from './args.ts';
import type { Invocation, Options } from './command.ts';
import { CliError } from './exits.ts';
import { printable } from './printable.ts';

/** `question` states the effect in one sentence. */
export async function confirm(
  {
    io,
    signal,
    values,
  }: Pick<Invocation<Options>, 'io' | 'signal'> & { values: { readonly yes?: boolean | undefined } },
  command: string,
  question: string,
): Promise<void> {
  if (values.yes === true) return;
  if (!process.stdin.isTTY) throw usage({ name: command }, `${question} Confirm with --yes`);
  const prompt = createInterface({ input: process.stdin, output: io.stderr });
  const ended = new AbortController();
  prompt.once('close', () => ended.abort());
  const within = { signal: AbortSignal.any([signal, ended.signal]) };
  try {
    const answer = await prompt.question(`${printable(question)} Type yes to continue: `, within).catch(() => '');
    signal.throwIfAborted();
    if (answer.trim() !== 'yes') throw new CliError('failed', 'cancelled: nothing was changed');
  } finally {
    prompt.close();
  }
}
