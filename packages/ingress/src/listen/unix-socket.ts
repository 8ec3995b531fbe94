/**
 * A Unix socket that only its owner can reach.
 *
 * Contract: the directory has mode 0700 and the owner of this process, the socket has mode 0600. A stale socket of a
 * dead process is replaced. A socket with a live listener, or a file of another type, is left alone and refused.
 */
import { chmod, lstat, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { makeDirectory } from '@ron/log';
import { RonError } from '@ron/kernel';

const PROBE_MS = 1000;

export async function prepareSocketPath(path: string): Promise<void> {
  const directory = dirname(path);
  await makeDirectory(directory);
  const found = await lstat(directory);
  if (!found.isDirectory() || (found.mode & 0o777) !== 0o700 || found.uid !== (process.geteuid?.() ?? found.uid)) {
    throw new RonError(
      'internal',
      `${directory} must be a directory of this user with mode 0700, so that no other user can reach the socket`,
    );
  }
  const old = await lstat(path).catch(() => undefined);
  if (old === undefined) return;
  if (!old.isSocket()) throw new RonError('internal', `${path} exists and is not a socket`);
  if (await answers(path)) throw new RonError('internal', `another process listens on ${path}`);
  await rm(path);
}

/** The directory already excludes other users; this covers users with access to it. */
export async function restrictSocket(path: string): Promise<void> {
  await chmod(path, 0o600);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.setTimeout(PROBE_MS);
    const settle = (alive: boolean): void => {
      probe.destroy();
      resolve(alive);
    };
    probe.once('connect', () => settle(true));
    probe.once('timeout', () => settle(true));
    probe.once('error', () => settle(false));
  });
}
