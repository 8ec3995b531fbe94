/**
 * Files that hold a secret: keys, passphrases, PINs, capabilities. The only code that reads and writes them.
 *
 * Contract: a file is read only if it is a regular file that belongs to this user or to root and that no other user can
 * read or write (mode & 077 is 0). The open file is checked, not its path, so the checked file is the one that is read.
 * A symbolic link is followed only if other users cannot replace it: the link and its directory belong to this user or to
 * root, and the directory is not writable for others, unless it is sticky. Kubernetes and certbot provide secrets as links.
 * An error states the path and the remedy, never the content. A written file is complete or absent, even after a crash.
 * Bound: `SECRET_BYTES_MAX`, or the limit of the caller; `LINKS_MAX` links. A FIFO does not block the reader.
 *
 *     const pin = await readSecretFile('/etc/ron/pin');
 *     await writeSecret('/etc/ron/kek', `${hex}\n`);
 */
import { constants } from 'node:fs';
import { link, lstat, open, readlink, rename, stat, unlink, type FileHandle } from 'node:fs/promises';
import { dirname, isAbsolute } from 'node:path';
import { RonError, sched } from '@ron/kernel/core';

/** Large enough for a key, a passphrase or a set of capabilities. */
const SECRET_BYTES_MAX = 64 * 1024;
const LINKS_MAX = 8;
const OTHERS = 0o077;
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** The text without surrounding white space. Rejects with `not_ready` if the file is missing or refused. */
export async function readSecretFile(path: string, bytes_max = SECRET_BYTES_MAX): Promise<string> {
  const text = await readSecret(path, bytes_max);
  if (text === undefined) throw refused(`${path} cannot be read (ENOENT)`);
  return text.trim();
}

/** The text; undefined if the file does not exist. */
export async function readSecret(path: string, bytes_max = SECRET_BYTES_MAX): Promise<string | undefined> {
  const bytes = await readSecretBytes(path, bytes_max);
  const text = bytes?.toString('utf8');
  bytes?.fill(0);
  return text;
}

/** The bytes, which the caller zeroes; undefined if the file does not exist. */
export async function readSecretBytes(path: string, bytes_max = SECRET_BYTES_MAX): Promise<Buffer | undefined> {
  try {
    const file = await openTrusted(path);
    if (file === undefined) return undefined;
    await using handle = file;
    await refuseIfExposed(handle, path, bytes_max);
    return await handle.readFile();
  } catch (error) {
    if (error instanceof RonError) throw error;
    throw refused(`${path} cannot be read (${systemCode(error)})`);
  }
}

/** Writes a file that only its owner can read, or replaces it. */
export async function writeSecret(path: string, data: string | Uint8Array): Promise<void> {
  await write(path, data, (temporary) => rename(temporary, path));
}

/** Like `writeSecret`, but leaves an existing file unchanged. Returns whether the file was written. */
export async function createSecret(path: string, data: string | Uint8Array): Promise<boolean> {
  try {
    // Unlike a rename, a hard link does not replace a file that another process created first.
    await write(path, data, async (temporary) => {
      await link(temporary, path);
      await unlink(temporary);
    });
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw new RonError('not_ready', `cannot create ${path}: its file system must support hard links`, { cause: error });
  }
}

/** Temporary file, sync, `place`, sync of the directory. */
async function write(
  path: string,
  data: string | Uint8Array,
  place: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = `${path}.${Buffer.from(sched.randomBytes(6)).toString('hex')}.tmp`;
  try {
    {
      await using file = await open(temporary, 'wx', 0o600);
      await file.writeFile(data);
      await file.sync();
    }
    await place(temporary);
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
  await using directory = await open(dirname(path), constants.O_RDONLY);
  await directory.sync();
}

/** Opens the file, following links that only this user or root can replace. Undefined if nothing has this name. */
async function openTrusted(path: string): Promise<FileHandle | undefined> {
  let at = path;
  for (let links = 0; links <= LINKS_MAX; links++) {
    try {
      return await open(at, FLAGS);
    } catch (error) {
      if (systemCode(error) === 'ENOENT' && links === 0) return undefined;
      if (systemCode(error) !== 'ELOOP') throw error;
    }
    at = await targetOf(path, at);
  }
  throw refused(`${path} is a chain of more than ${LINKS_MAX} symbolic links: name the file itself`);
}

async function targetOf(path: string, at: string): Promise<string> {
  const dir = dirname(at);
  const [own, holder] = await Promise.all([lstat(at), stat(dir)]);
  const isFixed = (holder.mode & OTHERS_WRITE) === 0 || (holder.mode & STICKY) !== 0;
  if (!isTrusted(own.uid) || !isTrusted(holder.uid) || !isFixed)
    throw refused(`${path} is a symbolic link that another user can replace: name the file itself`);
  const target = await readlink(at);
  // Joined as text: the system, not this code, resolves `..` behind a linked directory.
  return isAbsolute(target) ? target : `${dir}/${target}`;
}

async function refuseIfExposed(file: FileHandle, path: string, bytes_max: number): Promise<void> {
  const { mode, uid, size } = await file.stat();
  if ((mode & constants.S_IFMT) !== constants.S_IFREG) throw refused(`${path} is not a regular file`);
  const user = process.geteuid?.();
  if (!isTrusted(uid))
    throw refused(`${path} belongs to user ${uid}, this process runs as ${user}: run chown ${user} ${path}`);
  if (user !== undefined && (mode & OTHERS) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0');
    throw refused(`${path} is open to other users (mode ${octal}): run chmod 600 ${path}`);
  }
  if (size > bytes_max) throw refused(`${path} has ${size} bytes, the limit is ${bytes_max}`);
}

/** This user or root. Systems without user ids have no such check. */
function isTrusted(uid: number): boolean {
  const user = process.geteuid?.();
  return user === undefined || uid === user || uid === 0;
}

function refused(message: string): RonError {
  return new RonError('not_ready', message, { op: 'key_file' });
}

const systemCode = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'unknown';
