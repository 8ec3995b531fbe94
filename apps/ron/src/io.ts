/**
 * What a command says, and where: results on standard output, everything else on standard error.
 *
 * Promise: with `--json` standard output holds one JSON value a line and standard error at most one, the error. Text from
 * outside never moves the cursor: control characters are written as escapes. Whoever stops reading ends the command, not
 * with a stack trace.
 */
import { once } from 'node:events';
import { isRonError } from '@ron/kernel/core';
import { codeOf, CliError, EXITS, exitOf, systemCode, type Exit } from './exits.ts';

/** What a command gets from outside; tests give their own. */
export class Io {
  json = false;
  readonly stdout: NodeJS.WriteStream = process.stdout;
  readonly stderr: NodeJS.WriteStream = process.stderr;
  readonly env: Readonly<Record<string, string | undefined>> = process.env;
  /** Why nothing more can be written. */
  #broken: CliError | undefined;
  /** Resolves when what was written last is out, or could not be written. */
  #written: Promise<void> = Promise.resolve();

  constructor() {
    this.stdout.on('error', (error) => this.#breaks(error));
    this.stderr.on('error', () => undefined);
  }

  /** The result: as text for people, or as a value with `--json`. */
  result(text: string, value: unknown): void {
    if (this.json) this.#write(`${JSON.stringify(value)}\n`);
    else if (text !== '') this.#write(`${printable(text)}\n`);
  }

  /** Something worth knowing that is not the result. Silent with `--json`. */
  note(text: string): void {
    if (!this.json) this.stderr.write(`${printable(text)}\n`);
  }

  error(error: unknown): Exit {
    const exit = exitOf(error);
    if (exit === 'broken_pipe') return exit;
    const message = error instanceof Error ? error.message : String(error);
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

  /** Bytes of a result, as fast as the reader takes them. */
  async bytes(bytes: Uint8Array): Promise<void> {
    // A reader that is gone rejects the wait, or has set the mark before.
    if (this.#broken === undefined && !this.#write(bytes)) {
      await once(this.stdout, 'drain').catch((error: unknown) => this.#breaks(error));
    }
    if (this.#broken !== undefined) throw this.#broken;
  }

  /** Resolves when the result is out; rejects when it could not be written: a result that nobody got is none. */
  async flushed(): Promise<void> {
    await this.#written;
    if (this.#broken !== undefined) throw this.#broken;
  }

  /** Whether the reader keeps up. A reader that leaves after the last byte has missed nothing: only writes can fail. */
  #write(bytes: string | Uint8Array): boolean {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#written = promise;
    return this.stdout.write(bytes, (error) => {
      if (error !== null && error !== undefined) this.#breaks(error);
      resolve();
    });
  }

  #breaks(error: unknown): void {
    const code = systemCode(error) ?? 'unknown';
    this.#broken ??=
      code === 'EPIPE'
        ? new CliError('broken_pipe', 'the reader of the output closed it')
        : new CliError('io', `the output cannot be written (${code})`);
  }
}

/** Finds the request in the logs of the service that refused it. */
function corrIdOf(error: unknown): string | undefined {
  return isRonError(error) && 'corr_id' in error && typeof error.corr_id === 'string' ? error.corr_id : undefined;
}

/** Line breaks and tabs stay; what else a terminal would obey does not. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- finding them is the point
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (char) => {
    return `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}
