/**
 * A service as a process: `await using storage = await ServiceProcess.start({ main: MAIN, flags })`.
 *
 * Contract: `start` resolves when the service has printed its ready line, and rejects with a `StartError` if it exits
 * before that. Its log and its metrics are searched for secrets at the end of the test file. Disposal kills it.
 * Bound: a process that is not ready within `START_MS_MAX` is killed.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { leaks } from '@ron/auth/testing';
import { residentBytes } from '../proc.ts';
import { send, type Reply, type SendInit } from './http.ts';
import { metricIn } from './metrics.ts';

const START_MS_MAX = 60_000;

export interface ServiceProcessInit {
  /** The module to run. */
  readonly main: string;
  readonly flags?: readonly string[];
  /** Options of Node. */
  readonly node_flags?: readonly string[];
  readonly cwd?: string;
  /** Added to the environment of the test. */
  readonly env?: Readonly<Record<string, string>>;
  /** Opens an IPC channel to the process. Default false. */
  readonly ipc?: boolean;
  /** A program that starts Node under its own process id, such as `strace -D`. */
  readonly under?: readonly string[];
}

/** An exit code, or the signal that killed the process. */
export type ExitStatus = number | NodeJS.Signals | null;

export type LogRecord = Record<string, unknown>;

export class StartError extends Error {
  readonly status: ExitStatus;
  readonly log: readonly LogRecord[];

  constructor(status: ExitStatus, log: readonly LogRecord[]) {
    super(`the service exited during start (${status}): ${JSON.stringify(log.slice(-3))}`);
    this.status = status;
    this.log = log;
  }
}

export class ServiceProcess implements AsyncDisposable {
  readonly child: ChildProcess;
  /** Log lines so far. A line that is not JSON becomes `{ msg: line }`. */
  readonly log: LogRecord[] = [];
  url = '';

  private constructor(child: ChildProcess) {
    this.child = child;
    createInterface(child.stderr!).on('line', (line) => {
      leaks.shown('the log of a process', line);
      try {
        this.log.push(JSON.parse(line));
      } catch {
        this.log.push({ msg: line });
      }
    });
  }

  static async start(init: ServiceProcessInit): Promise<ServiceProcess> {
    const { main, flags = [], node_flags = [], cwd, env, ipc = false, under = [] } = init;
    const [program, ...args] = [...under, process.execPath, ...node_flags, main, ...flags];
    const child = spawn(program!, args, {
      stdio: ['ignore', 'pipe', 'pipe', ...(ipc ? (['ipc'] as const) : [])],
      ...(cwd !== undefined && { cwd }),
      ...(env !== undefined && { env: { ...process.env, ...env } }),
    });
    const started = new ServiceProcess(child);
    const ready = once(createInterface(child.stdout!), 'line') as Promise<[string]>;
    // After `close` the log is complete.
    const closed = once(child, 'close').then(([code, signal]) => {
      throw new StartError(code ?? signal, started.log);
    });
    closed.catch(() => undefined);
    const timer = setTimeout(() => child.kill('SIGKILL'), START_MS_MAX);
    const [line] = await Promise.race([ready, closed]).finally(() => clearTimeout(timer));
    started.url = JSON.parse(line).url;
    return started;
  }

  get pid(): number {
    return this.child.pid!;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  get resident_bytes(): number {
    return residentBytes(this.pid);
  }

  send(method: string, path: string, init?: SendInit): Promise<Reply> {
    return send(this.url, method, path, init);
  }

  async metric(series: string): Promise<number> {
    const { text } = await this.send('GET', '/metrics');
    leaks.shown('metrics of a process', text);
    return metricIn(text, series);
  }

  /** The first log record with this message. */
  logged(message: string): LogRecord | undefined {
    return this.log.find((entry) => entry['msg'] === message);
  }

  /** Waits for the end of the process. */
  async exit(): Promise<ExitStatus> {
    if (this.running) await once(this.child, 'exit');
    return this.child.exitCode ?? this.child.signalCode;
  }

  /** Kills the process with SIGKILL. */
  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.exit();
  }

  /** Stops the process with SIGTERM. */
  async stop(): Promise<ExitStatus> {
    this.child.kill('SIGTERM');
    return await this.exit();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
