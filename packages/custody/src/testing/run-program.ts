/**
 * Programs that tests start: run to completion, or kept in the background until they are stopped.
 *
 * Bound: `RUN_MS_MAX` per run; a background program is killed if it does not exit within a second after SIGTERM.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { Deadline } from '@ron/kernel';
import { whereIs } from './tools.ts';

const RUN_MS_MAX = 20_000;
const STOP_MS_MAX = 1000;

/** Runs a program to completion; rejects with its output if it fails. */
export async function runProgram(name: string, args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(whereIs([name]) ?? name, [...args], { timeout: RUN_MS_MAX });
  return stdout;
}

export class BackgroundProgram implements AsyncDisposable {
  readonly #child: ChildProcess;

  constructor(name: string, args: readonly string[]) {
    // In its own process group, so that `kill` reaches its children.
    this.#child = spawn(whereIs([name]) ?? name, [...args], { stdio: 'ignore', detached: true });
    // It must not keep the test process alive; tests stop it themselves.
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

  /** Stops the program and its children (SIGSTOP) until they are killed. */
  freeze(): void {
    if (this.isRunning && this.#child.pid !== undefined) process.kill(-this.#child.pid, 'SIGSTOP');
  }

  /** Kills the program and its children. */
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
