/**
 * One run of one service: a process of its own, in a process group of its own, so that Ctrl-C in a terminal reaches only
 * us and we decide the order.
 *
 * Promise: `ready` settles once: with the URL of the ready line, or with why there was none. `exited` settles when the
 * process is gone and its output is read. Bound: a first line of `LINE_CHARS_MAX`; `START_MS_MAX` until it is ready.
 * Cancellation: `terminate` asks it to drain, `kill` ends it and whatever it started.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { sched } from '@ron/kernel/core';
import type { LogFile } from './log-file.ts';

const EXIT_WITH_PARENT = fileURLToPath(new URL('./exit-with-parent.ts', import.meta.url));
const LINE_CHARS_MAX = 65_536;
const START_MS_MAX = 120_000;

export interface ServiceChildInit {
  name: string;
  main: string;
  flags: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  log: LogFile;
}

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** It ended, or was ended, before it was ready. */
export class StartError extends Error {
  override readonly name = 'StartError';
  readonly exit: ChildExit;
  constructor(name: string, exit: ChildExit) {
    super(`${name} did not start (${describeExit(exit)})`);
    this.exit = exit;
  }
}

export class ServiceChild {
  readonly pid: number | undefined;
  readonly ready: Promise<string>;
  readonly exited: Promise<ChildExit>;
  readonly #child: ChildProcess;
  #gone = false;

  constructor(init: ServiceChildInit) {
    init.log.startRun();
    this.#child = spawn(process.execPath, ['--import', EXIT_WITH_PARENT, init.main, ...init.flags], {
      detached: true,
      env: { ...init.env },
      // The fourth is the pipe: it is never written to, only closed when we are gone.
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    });
    this.pid = this.#child.pid;
    // A service that is gone breaks its pipe; that it is gone is known by its exit.
    this.#child.stdio[3]!.on('error', () => undefined);
    this.#child.stderr!.on('data', (chunk: Buffer) => init.log.write(chunk));
    this.exited = this.#watchExit();
    this.ready = this.#watchReady(init.name);
    // Both are awaited, but maybe not at once.
    this.ready.catch(() => undefined);
  }

  get isGone(): boolean {
    return this.#gone;
  }

  /** Asks it to drain; a second time, to abort. */
  terminate(): void {
    this.signal('SIGTERM');
  }

  signal(signal: NodeJS.Signals): void {
    if (!this.#gone) this.#child.kill(signal);
  }

  /** Ends the whole group now. */
  kill(): void {
    if (this.#gone || this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // It went by itself in this moment.
    }
  }

  async #watchExit(): Promise<ChildExit> {
    const [code, signal] = (await once(this.#child, 'close').catch(() => [null, null])) as [
      number | null,
      NodeJS.Signals | null,
    ];
    this.#gone = true;
    return { code, signal };
  }

  async #watchReady(name: string): Promise<string> {
    const late = sched.timer(START_MS_MAX, () => this.kill(), 'service.start');
    const url = await Promise.race([readyUrl(this.#child.stdout!), this.exited.then(() => undefined)]);
    late.cancel();
    if (url !== undefined) return url;
    throw new StartError(name, await this.exited);
  }
}

/** The URL of the line that says ready; undefined when the output ends without it. What follows is read and dropped. */
async function readyUrl(stdout: Readable): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let text = '';
  stdout.setEncoding('utf8');
  stdout.on('data', (chunk: string) => {
    if (text.length > LINE_CHARS_MAX) return;
    text += chunk;
    const url = text
      .split('\n')
      .slice(0, -1)
      .map(readyLine)
      .find((found) => found !== undefined);
    if (url !== undefined) resolve(url);
  });
  stdout.on('end', () => resolve(undefined));
  return await promise;
}

function readyLine(line: string): string | undefined {
  try {
    const { event, url } = JSON.parse(line) as { event?: unknown; url?: unknown };
    return event === 'ready' && typeof url === 'string' ? url : undefined;
  } catch {
    return undefined;
  }
}

export function describeExit({ code, signal }: ChildExit): string {
  return signal === null ? `exit code ${code ?? 'unknown'}` : signal;
}
