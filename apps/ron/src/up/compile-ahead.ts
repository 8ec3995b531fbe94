/**
 * Fills an empty compile cache before the services start.
 *
 * A process that compiles TypeScript loads Node's type stripper, which keeps 20 MiB until the process ends. Services that
 * find compiled code do not load it, and packages that services share are compiled fewer times.
 *
 * Contract: resolves once the code is compiled, or at once when it was before. A failure is not reported: the services then
 * compile their code themselves. Bound: `PROCESSES_MAX` processes, `COMPILE_MS_MAX` in all. Cancellation: by the signal.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Deadline } from '@ron/kernel/core';

const PROGRAM = fileURLToPath(new URL('./compile-services.ts', import.meta.url));
const EXIT_WITH_PARENT = fileURLToPath(new URL('./exit-with-parent.ts', import.meta.url));
/** Written by each `npm install`. */
const INSTALLED = fileURLToPath(new URL('../../../../node_modules/.package-lock.json', import.meta.url));
const COMPILE_MS_MAX = 30_000;
const PROCESSES_MAX = 2;

type Env = Readonly<Record<string, string | undefined>>;

export async function compileAhead(mains: readonly string[], env: Env, signal: AbortSignal): Promise<void> {
  const dir = env['NODE_COMPILE_CACHE'];
  if (dir === undefined || dir === '') return;
  const done = join(dir, `services-${await versionOf(mains)}`);
  if (await exists(done)) return;
  using due = Deadline.after('compile', COMPILE_MS_MAX, { signal });
  const count = Math.min(PROCESSES_MAX, availableParallelism(), mains.length);
  const shares = Array.from({ length: count }, (_, at) => mains.filter((_main, index) => index % count === at));
  try {
    await Promise.all(shares.map((share) => compile(share, env, due.signal)));
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await writeFile(done, '', { mode: 0o600 });
  } catch {
    signal.throwIfAborted();
  }
}

async function compile(mains: readonly string[], env: Env, signal: AbortSignal): Promise<void> {
  const child = spawn(process.execPath, ['--import', EXIT_WITH_PARENT, PROGRAM, ...mains], {
    env: { ...env },
    // The fourth is the pipe of exit-with-parent.ts.
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
  });
  const [code] = (await once(child, 'close', { signal })) as [number | null];
  if (code !== 0) throw new Error(`compiling ended with ${code}`);
}

/** Changes with Node, with the services and with each `npm install`. */
async function versionOf(mains: readonly string[]): Promise<string> {
  const installed = await stat(INSTALLED).catch(() => undefined);
  const text = JSON.stringify([process.version, mains, installed?.mtimeMs]);
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}
