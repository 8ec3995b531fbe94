/** Checks that a directory and the sockets in it belong to this user: another user could listen in place of a service. */
import { lstat } from 'node:fs/promises';
import { CliError, systemCode } from './exits.ts';
import type { Home } from './home.ts';
import type { Service } from '@ron/proto';

/** Throws `permission` unless the directory belongs to this user and, if given, has this mode and is not a link. */
export async function requireOwn(dir: string, mode?: number): Promise<void> {
  const found = await lstat(dir);
  const user = process.geteuid?.() ?? found.uid;
  const isOwn = found.uid === user && (mode === undefined || found.isDirectory());
  if (isOwn && (mode === undefined || (found.mode & 0o777) === mode)) return;
  throw new CliError(
    'permission',
    `${dir} must be a directory of this user${mode === undefined ? '' : ' with mode 0700'}: another user could listen there in place of a service. Remove it, or choose another directory with --dir`,
  );
}

/** Throws `permission` if the socket of a service, or its directory, exists and may be of another user. */
export async function requireOwnSocket(home: Home, service: Service): Promise<void> {
  const { socket } = home.of(service);
  try {
    await requireOwn(home.run, 0o700);
    if ((await lstat(socket)).isSocket()) return;
  } catch (error) {
    // The service restarts, or does not run: the connection fails.
    if (systemCode(error) === 'ENOENT') return;
    throw error;
  }
  throw new CliError('permission', `${socket} is not a socket: another user could listen there in place of ${service}`);
}
