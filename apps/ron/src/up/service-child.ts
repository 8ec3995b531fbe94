/**
 * One run of a service as a child process. It has its own process group, so that Ctrl-C in a terminal is delivered only to
 * `ron up`, which stops the services in order.
 *
 * Contract: `ready` resolves with the URL of the ready line, or rejects with `StartError`. `exited` resolves when the process
 * is gone and its output is read. Bound: `LINE_CHARS_MAX` of output until the ready line; `START_MS_MAX` until it is ready.
 * Cancellation: `terminate` requests a drain, `kill` kills the whole process group.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { sched } from '@ron/kernel/core';
import type { LogFile } from './log-file.ts';

const EXIT_WITH_PARENT = fileURLToPath(new URL('./exit-with-parent.ts', import.meta.url));
/** The name that `runProcess` reads: signals after the first are then ignored, because `ron up` decides when to abort. */
const SUPERVISED = 'RON_SUPERVISED';
/** The file descriptor of the inherited socket in the service. */
export const LISTEN_FD = 4;
const LINE_CHARS_MAX = 65_536;
const START_MS_MAX = 120_000;

export interface ServiceChildInit {
  name: string;
  main: string;
  flags: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  log: LogFile;
  /** A bound socket that the service inherits as `LISTEN_FD`. */
  listen_fd?: number | undefined;
}

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The process exited or was killed before it was ready. */
export class StartError extends Error {
  override readonly name = 'StartError';
  readonly exit: ChildExit;
  constructor(name: string, exit: ChildExit) {
    super(`${name} failed to start: it ${describeExit(exit)}`);
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
    this.#child = spawn(
      process.execPath,
      ['--disable-sigusr1', '--import', EXIT_WITH_PARENT, init.main, ...init.flags],
      {
        detached: true,
        env: { ...init.env, [SUPERVISED]: '1' },
        // The fourth is the pipe of exit-with-parent.ts. It is never written; the system closes it when `ron up` exits.
        stdio: ['ignore', 'pipe', 'pipe', 'pipe', ...(init.listen_fd === undefined ? [] : [init.listen_fd])],
      },
    );
    this.pid = this.#child.pid;
    // The exit of the service breaks the pipe; `exited` reports it.
    this.#child.stdio[3]!.on('error', () => undefined);
    this.#child.stderr!.on('data', (chunk: Buffer) => init.log.write(chunk));
    this.exited = this.#watchExit();
    this.ready = this.#watchReady(init.name);
    // The owner may await it later: avoid an unhandled rejection.
    this.ready.catch(() => undefined);
  }

  get isGone(): boolean {
    return this.#gone;
  }

  /** Requests a drain. */
  terminate(): void {
    this.signal('SIGTERM');
  }

  /** Requests an abort, even during a drain. */
  abort(): void {
    this.signal('SIGQUIT');
  }

  signal(signal: NodeJS.Signals): void {
    if (!this.#gone) this.#child.kill(signal);
  }

  /** Kills the process group. */
  kill(): void {
    if (this.#gone || this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // The process has just exited.
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

/** The URL of the ready line; undefined if the output ends without one. Later output is discarded. */
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
  return signal === null ? `exited with code ${code ?? 'unknown'}` : `was killed (${signal})`;
}
