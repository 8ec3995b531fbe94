/**
 * Files that only their owner may read.
 *
 * Contract: a file is complete or absent, even after a crash: it is created with mode 0600 and renamed into place. Reading
 * refuses a file with permissions for other users, a file of another user, a link, and anything but a regular file.
 * Bound: `bytes_max` when reading.
 */
import { constants } from 'node:fs';
import { open, rename, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sched } from '@ron/kernel/core';
import { CliError, systemCode } from './exits.ts';

const OTHERS = 0o077;

/** The text; undefined if the file does not exist. */
export async function readSecret(path: string, bytes_max: number): Promise<string | undefined> {
  let file;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    if (systemCode(error) === 'ELOOP') throw refused(`${path} is a symbolic link: name the file itself`);
    throw refused(`${path} cannot be read (${systemCode(error) ?? 'unknown'})`);
  }
  await using handle = file;
  const { mode, uid, size } = await handle.stat();
  if ((mode & constants.S_IFMT) !== constants.S_IFREG) throw refused(`${path} is not a regular file`);
  const user = process.geteuid?.();
  if (user !== undefined && uid !== user) throw refused(`${path} belongs to another user: run chown ${user} ${path}`);
  if (user !== undefined && (mode & OTHERS) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0');
    throw refused(`${path} is open to other users (mode ${octal}): run chmod 600 ${path}`);
  }
  if (size > bytes_max) throw refused(`${path} has ${size} bytes; at most ${bytes_max} are allowed`);
  return await handle.readFile('utf8');
}

/** Replaces the file atomically. */
export async function writeSecret(path: string, text: string): Promise<void> {
  const temporary = `${path}.${Buffer.from(sched.randomBytes(6)).toString('hex')}.tmp`;
  try {
    {
      await using file = await open(temporary, 'wx', 0o600);
      await file.writeFile(text);
      await file.sync();
    }
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await using directory = await open(dirname(path), constants.O_RDONLY);
  await directory.sync();
}

function refused(message: string): CliError {
  return new CliError('permission', message);
}
