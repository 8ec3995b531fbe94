/** Asks the operator before a change that cannot be undone. */
import { createInterface } from 'node:readline/promises';
import { usage } from './args.ts';
import { CliError } from './exits.ts';
import type { Io } from './io.ts';

/** Resolves if the operator agrees; otherwise throws. Without a terminal, `--yes` is required. */
export async function confirm(question: string, command: string, io: Io, signal: AbortSignal): Promise<void> {
  if (!process.stdin.isTTY) throw usage({ name: command }, '--yes is required without a terminal');
  const terminal = createInterface({ input: process.stdin, output: io.stderr });
  try {
    const answer = await terminal.question(`${question} [y/N] `, { signal });
    if (!/^y(es)?$/i.test(answer.trim())) throw new CliError('failed', 'nothing was changed');
  } finally {
    terminal.close();
  }
}
