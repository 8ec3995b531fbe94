/** Helpers for tests of the command line: `ron` as a child process with its output, and commands without a process. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { leaks } from '@ron/auth/testing';
import { tempDir, type After } from '@ron/testkit';
import { runCli } from '../src/cli.ts';
import { Io } from '../src/io.ts';

export const BIN = fileURLToPath(new URL('../bin/ron.js', import.meta.url));
const WAIT_MS = 60_000;

/** A temporary directory for nodes. Their logs are searched for their keys before it is removed. */
export async function temporaryDir(t: After): Promise<string> {
  const temp = await tempDir();
  t.after(async () => {
    await noteLeaks(temp.path);
    await temp[Symbol.asyncDispose]();
  });
  return temp.path;
}

/** Files that hold secrets by design, each readable by its owner only. */
const SECRET_FILE = /(^|\/)(keys?|kek|[^/]*\.(?:cap|curl|invite))$/;
const SCANNED_BYTES_MAX = 1024 * 1024;

/** Registers the files of nodes below a directory as public, and the keys in their secret files as secret. */
async function noteLeaks(dir: string): Promise<void> {
  for (const file of globSync('**/*', { cwd: dir, exclude: (name) => name.endsWith('.sock') })) {
    const found = await stat(join(dir, file)).catch(() => undefined);
    if (found?.isFile() !== true || found.size > SCANNED_BYTES_MAX) continue;
    const text = await readFile(join(dir, file), 'latin1').catch(() => '');
    if (!SECRET_FILE.test(file)) leaks.shown(file.includes('logs/') ? `the log ${file}` : 'a file of a node', text);
    for (const [, key] of SECRET_FILE.test(file) ? text.matchAll(/^(?:[a-z0-9]+ )?([0-9a-f]{64})$/gm) : [])
      leaks.secret(`a key of ${file}`, Buffer.from(key!, 'hex'));
  }
}

/** Registers the command lines of services as public, and the environments of those that hold no secret of the node. */
async function noteProcesses(pids: Readonly<Record<string, number>>): Promise<void> {
  for (const [name, pid] of Object.entries(pids)) {
    const read = (file: string): Promise<string> => readFile(`/proc/${pid}/${file}`, 'latin1').catch(() => '');
    leaks.shown(`the command line of ${name}`, await read('cmdline'));
    if (name !== 'kms') leaks.shown(`the environment of ${name}`, await read('environ'));
  }
}

export interface RunInit {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly input?: string | Uint8Array;
  /** The user of the process. Default: that of the test. */
  readonly uid?: number;
  /** The program to run. Default: `ron`. */
  readonly program?: string;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: Buffer;
  readonly text: string;
  readonly stderr: string;
}

/** A child process and its output. */
export class Process {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  stderr = '';
  #stdout: Buffer[] = [];
  #onOutput: (() => void)[] = [];

  constructor(t: After, args: readonly string[], init: RunInit = {}) {
    const { RON_DIR: _dir, RON_URL: _url, RON_CAPABILITY_FILE: _file, ...env } = process.env;
    this.child = spawn(process.execPath, [init.program ?? BIN, ...args], {
      cwd: init.cwd,
      ...(init.uid !== undefined && { uid: init.uid, gid: init.uid }),
      env: { ...env, ...init.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.stdout!.on('data', (chunk: Buffer) => {
      this.#stdout.push(chunk);
      this.#onData();
    });
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.#onData();
    });
    this.child.stdin!.on('error', () => undefined);
    if (init.input !== undefined) this.child.stdin!.end(init.input);
    this.ended = this.#watch(args[0] === 'cap');
    t.after(async () => {
      // A node drains, so that its services do not outlive the test.
      if (this.child.exitCode === null) this.child.kill('SIGTERM');
      await this.ended;
    });
  }

  get stdout(): string {
    return Buffer.concat(this.#stdout).toString();
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Calls `look` after each output until it returns a value. Fails if the process exits or the time is up first. */
  async until<T>(what: string, look: () => T | undefined | false): Promise<T> {
    const ends = performance.now() + WAIT_MS;
    for (;;) {
      const found = look();
      if (found !== undefined && found !== false) return found;
      const output = `output:\n${this.stdout}\n${this.stderr}`;
      assert.ok(performance.now() < ends, `timed out waiting for ${what}; ${output}`);
      assert.ok(this.child.exitCode === null && this.child.signalCode === null, `exited before ${what}; ${output}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 100);
        this.#onOutput.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** `ron cap` prints capabilities on request, so its output may contain secrets. */
  async #watch(printsSecrets: boolean): Promise<Ended> {
    const [code, signal] = (await once(this.child, 'close')) as [number | null, NodeJS.Signals | null];
    this.#onData();
    const stdout = Buffer.concat(this.#stdout);
    leaks.shown('standard error', this.stderr);
    if (!printsSecrets) leaks.shown('standard output', stdout.toString('latin1'));
    return { code, signal, stdout, text: stdout.toString(), stderr: this.stderr };
  }

  #onData(): void {
    for (const wake of this.#onOutput.splice(0)) wake();
  }
}

/** Runs `ron` until it exits. */
export async function ron(t: After, args: readonly string[], init: RunInit = {}): Promise<Ended> {
  return await new Process(t, args, { input: '', ...init }).ended;
}

/**
 * Runs a command in the process of the test, which is much cheaper than a new process. Paths are absolute, or relative to
 * the directory of the test process. Not for `up`, standard input, or promises about a process: signals, users, pipes.
 */
export async function command(args: readonly string[], env: RunInit['env'] = {}): Promise<Ended> {
  const { RON_DIR: _dir, RON_URL: _url, RON_CAPABILITY_FILE: _file, ...inherited } = process.env;
  const [stdout, stderr] = [new Output(), new Output()];
  const io = new Io({ stdout: stdout.stream, stderr: stderr.stream, env: { ...inherited, ...env } });
  const code = await runCli(args, io);
  const [out, text] = [stdout.bytes, stderr.bytes.toString()];
  leaks.shown('standard error', text);
  if (!isSecretRequested(args)) leaks.shown('standard output', out.toString('latin1'));
  return { code, signal: null, stdout: out, text: out.toString(), stderr: text };
}

/** A temporary directory that is the current one until the test ends, for a file whose tests run one after another. */
export async function inTemporaryDir(t: After): Promise<string> {
  const [before, work] = [process.cwd(), await temporaryDir(t)];
  t.after(() => process.chdir(before));
  process.chdir(work);
  return work;
}

/** Collects the output of a command; not a terminal. */
class Output {
  readonly #chunks: Buffer[] = [];
  readonly stream = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      this.#chunks.push(chunk);
      done();
    },
  }) as unknown as NodeJS.WriteStream;

  get bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }
}

export interface Up {
  readonly process: Process;
  readonly dir: string;
  readonly services: Readonly<Record<string, string>>;
  readonly pids: Readonly<Record<string, number>>;
  readonly capability_file: string;
}

/** Starts a node on free ports and waits until it is ready. */
export async function up(t: After, dir: string, args: readonly string[] = [], init: RunInit = {}): Promise<Up> {
  const process = new Process(t, ['up', '--json', '--base-port', '0', '--dir', dir, ...args], init);
  const line = await process.until('the ready line', () => process.stdout.includes('\n') && process.stdout);
  const ready = JSON.parse(line) as Omit<Up, 'process' | 'dir'> & { ready: boolean };
  assert.equal(ready.ready, true);
  await noteProcesses(ready.pids);
  return { ...ready, process, dir };
}

/** Capabilities, and an invitation to standard output, are printed on request. */
const isSecretRequested = ([verb, ...rest]: readonly string[]): boolean =>
  verb === 'cap' || (verb === 'net' && rest[0] === 'invite' && rest[rest.indexOf('-o') + 1] === '-');

/** Clean-up functions of a whole file, run in reverse order. */
export class CleanUps implements After {
  readonly #all: (() => Promise<void> | void)[] = [];

  after(cleanUp: () => Promise<void> | void): void {
    this.#all.push(cleanUp);
  }

  async run(): Promise<void> {
    for (const cleanUp of this.#all.toReversed()) await cleanUp();
  }
}
