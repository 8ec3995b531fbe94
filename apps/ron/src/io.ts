/**
 * Output of a command: results on standard output, everything else on standard error.
 *
 * Contract: with `--json`, standard output holds JSON Lines and standard error at most one JSON value, the error. Control
 * characters in text from a server are escaped, so it cannot control the terminal; line breaks too where its text is one
 * value of several. A closed standard output ends the command with `broken_pipe`, without a stack trace.
 */
import { once } from 'node:events';
import { isRonError } from '@ron/kernel/core';
import { oneLine, printable } from './printable.ts';
import { codeOf, CliError, EXITS, exitOf, messageOf, systemCode, type Exit } from './exits.ts';

/** Standard streams and environment of a command; tests substitute their own. */
export class Io {
  json = false;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: Record<string, string | undefined>;
  /** The error that ended standard output. */
  #broken: CliError | undefined;
  /** Resolves when the last write has succeeded or failed. */
  #written: Promise<void> = Promise.resolve();

  constructor({ stdout, stderr, env }: Pick<Io, 'stdout' | 'stderr' | 'env'> = process) {
    this.stdout = stdout;
    this.stderr = stderr;
    this.env = env;
    this.stdout.on('error', (error) => this.#onWriteError(error));
    this.stderr.on('error', () => undefined);
  }

  /** Prints the result: `text`, or `value` with `--json`. */
  result(text: string, value: unknown): void {
    if (this.json) this.#write(`${JSON.stringify(value)}\n`);
    else if (text !== '') this.#write(`${printable(text)}\n`);
  }

  /** Prints a note on standard error. Silent with `--json`. */
  note(text: string): void {
    if (!this.json) this.stderr.write(`${printable(text)}\n`);
  }

  error(error: unknown): Exit {
    const exit = exitOf(error);
    if (exit === 'broken_pipe') return exit;
    // Errors of `ron` itself may have several lines; those of a service do not.
    const message = isRonError(error) ? oneLine(messageOf(error)) : messageOf(error);
    const corr_id = corrIdOf(error);
    if (this.json) {
      const details = { code: codeOf(error), message, exit: EXITS[exit].code, corr_id };
      this.stderr.write(`${JSON.stringify({ error: details })}\n`);
      return exit;
    }
    const about = corr_id === undefined ? '' : ` (corr_id ${corr_id})`;
    this.stderr.write(`ron: ${printable(message + about)}\n`);
    if (exit === 'internal' && error instanceof Error && !(error instanceof CliError)) {
      this.stderr.write(`${printable(error.stack ?? '')}\n`);
    }
    return exit;
  }

  /** Writes bytes of a result, with backpressure. */
  async bytes(bytes: Uint8Array): Promise<void> {
    // If the reader is gone, `once` rejects, or `#broken` is already set.
    if (this.#broken === undefined && !this.#write(bytes)) {
      await once(this.stdout, 'drain').catch((error: unknown) => this.#onWriteError(error));
    }
    if (this.#broken !== undefined) throw this.#broken;
  }

  /** Resolves when the result is written; rejects if it could not be, because an undelivered result is a failure. */
  async flushed(): Promise<void> {
    await this.#written;
    if (this.#broken !== undefined) throw this.#broken;
  }

  /** Returns whether the buffer has room. Only writes can fail: a reader may close the pipe after the last byte. */
  #write(bytes: string | Uint8Array): boolean {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#written = promise;
    return this.stdout.write(bytes, (error) => {
      if (error !== null && error !== undefined) this.#onWriteError(error);
      resolve();
    });
  }

  #onWriteError(error: unknown): void {
    const code = systemCode(error) ?? 'unknown';
    this.#broken ??=
      code === 'EPIPE'
        ? new CliError('broken_pipe', 'the reader of the output closed it')
        : new CliError('io', `the output cannot be written (${code})`);
  }
}

/** The id of the request in the logs of the service that refused it. */
function corrIdOf(error: unknown): string | undefined {
  return isRonError(error) && 'corr_id' in error && typeof error.corr_id === 'string' ? error.corr_id : undefined;
}
