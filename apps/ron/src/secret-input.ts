/**
 * A secret of another program, such as the signing secret of a webhook: from a file, standard input, a prompt or made here.
 *
 * Contract: never from an argument, which other users can read. A file must be private (`readSecretFile`); the prompt does not
 * echo; white space around the secret is removed. No message repeats it. Bound: `SECRET_BYTES_MAX`.
 * Cancellation: by the signal, and by Ctrl-C at the prompt.
 */
import { createInterface } from 'node:readline/promises';
import { addAbortSignal, Writable } from 'node:stream';
import { readSecretFile } from '@ron/log/secret-file';
import { usage } from './args.ts';
import type { Invocation, Options } from './command.ts';
import { CliError } from './exits.ts';

const SECRET_BYTES_MAX = 4096;

export interface SecretSource {
  readonly command: string;
  /** A path, or `-` for standard input. Default: a prompt. */
  readonly file: string | undefined;
  /** The flag that names the file, for messages. */
  readonly flag: string;
  readonly question: string;
}

export async function readSecretInput(
  { io, signal }: Pick<Invocation<Options>, 'io' | 'signal'>,
  { command, file, flag, question }: SecretSource,
): Promise<string> {
  if (file === undefined && !process.stdin.isTTY)
    throw usage({ name: command }, `${flag} FILE is required without a terminal; ${flag} - reads standard input`);
  const given =
    file === undefined
      ? await promptSecret(question, io.stderr, signal)
      : file === '-'
        ? await standardInput(signal)
        : await readSecretFile(file, SECRET_BYTES_MAX);
  const secret = given.trim();
  if (secret === '') throw new CliError('usage', 'the secret is empty: nothing was changed');
  return secret;
}

async function standardInput(signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of addAbortSignal(signal, process.stdin)) {
    bytes += (chunk as Buffer).length;
    if (bytes > SECRET_BYTES_MAX) throw new CliError('usage', `standard input has more than ${SECRET_BYTES_MAX} bytes`);
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Readline takes the terminal out of its echoing mode and echoes to its own output, which discards it. */
async function promptSecret(question: string, shown: NodeJS.WriteStream, signal: AbortSignal): Promise<string> {
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  const prompt = createInterface({ input: process.stdin, output: silent, terminal: true, historySize: 0 });
  // Only now: until readline has the terminal, it echoes.
  shown.write(question);
  const ended = new AbortController();
  prompt.once('SIGINT', () => ended.abort(new CliError('interrupted', 'interrupted')));
  prompt.once('close', () => ended.abort(new CliError('usage', 'no secret was entered: nothing was changed')));
  const within = AbortSignal.any([signal, ended.signal]);
  try {
    return await prompt.question('', { signal: within });
  } catch (error) {
    throw within.aborted ? within.reason : error;
  } finally {
    prompt.close();
    shown.write('\n');
  }
}
