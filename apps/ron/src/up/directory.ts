/**
 * The directory of a node: accessible to its owner only, and locked by one `ron up` at a time.
 */
import { constants } from 'node:fs';
import { access, chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDirectory, tryLock } from '@ron/log';
import { sleep } from '@ron/kernel/core';
import { CliError, systemCode } from '../exits.ts';
import { homeAt, homeOf, inAmnesia, readState, type Home, type NodeState } from '../home.ts';
import { requireOwn } from '../own-directory.ts';
import type { Io } from '../io.ts';
import { writeSecret } from '@ron/log/secret-file';

export interface LockedHome extends AsyncDisposable {
  readonly home: Home;
  writeState(state: NodeState): Promise<void>;
}

/** Creates the directory if necessary and locks it. If another `ron up` holds the lock, the error names its pid. */
export async function lockHome(
  values: { readonly dir?: string | undefined; readonly amnesia?: boolean | undefined },
  io: Io,
  signal: AbortSignal,
): Promise<LockedHome> {
  const isTemporary = values.amnesia === true && values.dir === undefined && !io.env['RON_DIR'];
  const lasting = isTemporary ? homeAt(await memoryDirectory(io)) : homeOf(values, io);
  const home = values.amnesia === true ? inAmnesia(lasting) : lasting;
  if (home.dir.includes(','))
    throw new CliError('usage', `${home.dir}: the path must not contain a comma, which separates directories`);
  try {
    await makeDirectory(home.dir);
    await requireOwn(home.dir);
    // An existing directory may be open to other users; its contents are secret.
    await chmod(home.dir, 0o700);
    await makeDirectory(home.run);
    await requireOwn(home.run, 0o700);
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError('no_output', `${home.dir} cannot be used (${systemCode(error) ?? String(error)})`);
  }
  const lock = tryLock(home.lock) ?? (await refuse(home, signal));
  const forgetNetwork = (): Promise<void> => rm(inAmnesia(home).net.dir, { recursive: true, force: true });
  // An earlier run may have been killed.
  await forgetNetwork();
  return {
    home,
    writeState: (state) => writeSecret(home.state, `${JSON.stringify(state)}\n`),
    async [Symbol.asyncDispose]() {
      await forgetNetwork();
      await rm(isTemporary ? home.dir : home.state, { recursive: true, force: true });
      lock[Symbol.dispose]();
    },
  };
}

/** Waits briefly for the state file, which the owner of the lock writes right after taking it. */
async function refuse(home: Home, signal: AbortSignal): Promise<never> {
  for (let polls = 0; (await readState(home)) === undefined && polls < 20; polls++) await sleep(50, signal, 'lock');
  const state = await readState(home);
  const owner = state === undefined ? 'another process' : `pid ${state.pid}, since ${state.started}`;
  throw new CliError(
    'unavailable',
    `${home.dir} is in use by \`ron up\` (${owner}): stop it, or choose another with --dir`,
  );
}

/** A temporary directory, in memory if the system has such a file system. */
async function memoryDirectory(io: Io): Promise<string> {
  for (const parent of [io.env['XDG_RUNTIME_DIR'], '/dev/shm', tmpdir()]) {
    if (parent === undefined || parent === '') continue;
    try {
      await access(parent, constants.W_OK);
      return await mkdtemp(join(parent, 'ron-'));
    } catch {
      // Try the next candidate.
    }
  }
  throw new CliError('no_output', 'no directory for temporary files is writable; name one with --dir');
}
