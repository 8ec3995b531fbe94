/**
 * Programs that tests start: run to their end, or kept in the background until they are stopped.
 *
 * Bound: `RUN_MS_MAX` for a run; a program in the background is killed when it does not end by itself within a second.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { Deadline } from '@ron/kernel';
import { whereIs } from './tools.ts';

const RUN_MS_MAX = 20_000;
const STOP_MS_MAX = 1000;

/** Runs a program to its end; rejects with what it said when it fails. */
export async function runProgram(name: string, args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(whereIs([name]) ?? name, [...args], { timeout: RUN_MS_MAX });
  return stdout;
}

export class BackgroundProgram implements AsyncDisposable {
  readonly #child: ChildProcess;

  constructor(name: string, args: readonly string[]) {
    // In a group of its own, so that `kill` reaches what it starts itself.
    this.#child = spawn(whereIs([name]) ?? name, [...args], { stdio: 'ignore', detached: true });
    // It must not keep the tests from ending; they stop it themselves.
    this.#child.unref();
  }

  get isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async stop(): Promise<void> {
    if (!this.isRunning) return;
    const deadline = Deadline.after('stop', STOP_MS_MAX);
    const exited = once(this.#child, 'exit', { signal: deadline.signal });
    this.#child.kill('SIGTERM');
    await exited.catch(() => this.#child.kill('SIGKILL'));
    deadline.cancel();
  }

  /** It and all that it started stand still, until they are killed. */
  freeze(): void {
    if (this.isRunning && this.#child.pid !== undefined) process.kill(-this.#child.pid, 'SIGSTOP');
  }

  /** Ends it and all that it started, without a chance to say anything. */
  async kill(): Promise<void> {
    if (!this.isRunning || this.#child.pid === undefined) return;
    const exited = once(this.#child, 'exit');
    process.kill(-this.#child.pid, 'SIGKILL');
    await exited;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
