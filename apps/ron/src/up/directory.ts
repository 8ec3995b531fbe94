/**
 * The directory of a node: made for us alone, and held by one `ron up` at a time.
 */
import { constants } from 'node:fs';
import { access, chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDirectory, tryLock } from '@ron/kernel';
import { sleep } from '@ron/kernel/core';
import { CliError, systemCode } from '../exits.ts';
import { homeAt, homeOf, readState, type Home, type NodeState } from '../home.ts';
import type { Io } from '../io.ts';
import { writeSecret } from '../secret-file.ts';

export interface LockedHome extends AsyncDisposable {
  readonly home: Home;
  announce(state: NodeState): Promise<void>;
}

/** Opens the directory and takes its lock. Refused, with who has it, when another `ron up` does. */
export async function lockHome(
  values: { readonly dir?: string | undefined; readonly amnesia?: boolean | undefined },
  io: Io,
  signal: AbortSignal,
): Promise<LockedHome> {
  const isForgotten = values.amnesia === true && values.dir === undefined && !io.env['RON_DIR'];
  const home = isForgotten ? homeAt(await memoryDirectory(io)) : homeOf(values, io);
  if (home.dir.includes(','))
    throw new CliError('usage', `${home.dir}: a comma in the path separates directories; choose another`);
  try {
    await makeDirectory(home.dir);
    // One that was there may be open to others; what lies in it is for nobody else.
    await chmod(home.dir, 0o700);
  } catch (error) {
    throw new CliError('no_output', `${home.dir} cannot be used (${systemCode(error) ?? String(error)})`);
  }
  const lock = tryLock(home.lock) ?? (await refuse(home, signal));
  return {
    home,
    announce: (state) => writeSecret(home.state, `${JSON.stringify(state)}\n`),
    async [Symbol.asyncDispose]() {
      await rm(isForgotten ? home.dir : home.state, { recursive: true, force: true });
      lock[Symbol.dispose]();
    },
  };
}

/** Who holds it writes that down right after taking it; the wait is for that moment. */
async function refuse(home: Home, signal: AbortSignal): Promise<never> {
  for (let looks = 0; (await readState(home)) === undefined && looks < 20; looks++) await sleep(50, signal, 'lock');
  const state = await readState(home);
  const who = state === undefined ? 'another process' : `pid ${state.pid}, since ${state.started}`;
  throw new CliError(
    'unavailable',
    `${home.dir} is in use by \`ron up\` (${who}): stop it, or choose another with --dir`,
  );
}

/** A place that is forgotten: in memory where the system has such a file system. */
async function memoryDirectory(io: Io): Promise<string> {
  for (const parent of [io.env['XDG_RUNTIME_DIR'], '/dev/shm', tmpdir()]) {
    if (parent === undefined || parent === '') continue;
    try {
      await access(parent, constants.W_OK);
      return await mkdtemp(join(parent, 'ron-'));
    } catch {
      // The next one.
    }
  }
  throw new CliError('no_output', 'there is no directory for temporary files; name one with --dir');
}
