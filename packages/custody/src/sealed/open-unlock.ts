/**
 * Reads the secret that opens the sealed files of a directory: a key from a file or the environment, or a passphrase.
 *
 * Contract: a secret file must have mode 0600, or it is refused. A generated key is stored beside the files that it seals,
 * which protects copies of single files only; a warning says so.
 */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { RonError, sched } from '@ron/kernel';
import { writeWhole, type FileSystem } from '@ron/log';
import { KEK_BYTES, kekFromText, type Unlock } from './sealer.ts';

export const KEK_VARIABLE = 'RON_KEK';
/** Large enough for a key, a passphrase, a capability or an address. */
const SECRET_FILE_BYTES_MAX = 64 * 1024;

export interface OpenUnlockInit {
  /** The directory of the sealed files. */
  readonly dir: string;
  /** A file with a key. Default: the environment, then `kek` in `dir`, which is generated if it is missing. */
  readonly kek_file?: string | undefined;
  /** Used instead of a key. */
  readonly passphrase_file?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly fs: FileSystem;
  readonly warn: (what: string) => void;
}

export async function openUnlock(init: OpenUnlockInit): Promise<Unlock> {
  const { kek_file, passphrase_file, dir, env, fs, warn } = init;
  if (passphrase_file !== undefined) return { passphrase: await readSecretFile(passphrase_file) };
  if (kek_file !== undefined) return { kek: kekFromText(await readSecretFile(kek_file)) };
  const given = env[KEK_VARIABLE];
  if (given !== undefined && given !== '') return { kek: kekFromText(given) };
  const path = join(dir, 'kek');
  await fs.makeDir(dir);
  if (!(await fs.list(dir)).includes('kek')) await makeKek(fs, dir, path);
  warn(
    `the encryption key of ${dir} is stored in the same directory: a copy of the directory exposes all keys; set ${KEK_VARIABLE} or a key file`,
  );
  return { kek: kekFromText(await readSecretFile(path)) };
}

/** Writes atomically, because a partial key would break every later start, and never replaces an existing key. */
async function makeKek(fs: FileSystem, dir: string, path: string): Promise<void> {
  const lock = fs.lock?.(`${path}.lock`);
  if (fs.lock !== undefined && lock === undefined) {
    throw new RonError('conflict', `${path} is being created by another process`);
  }
  try {
    if ((await fs.list(dir)).includes('kek')) return;
    await writeWhole(fs, path, Buffer.from(`${Buffer.from(sched.randomBytes(KEK_BYTES)).toString('hex')}\n`));
  } finally {
    lock?.[Symbol.dispose]();
  }
}

/** Reads a file that only its owner can read. */
export async function readSecretFile(path: string): Promise<string> {
  let text: string;
  try {
    // Non-blocking, so that a FIFO at this path does not block the start.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stats = await file.stat();
    if (!stats.isFile()) throw new RonError('not_ready', `${path} is not a regular file`, { op: 'key_file' });
    if (stats.size > SECRET_FILE_BYTES_MAX)
      throw new RonError('not_ready', `${path} has ${stats.size} bytes, the limit is ${SECRET_FILE_BYTES_MAX}`, {
        op: 'key_file',
      });
    if ((stats.mode & 0o077) !== 0) {
      const octal = (stats.mode & 0o777).toString(8).padStart(4, '0');
      throw new RonError('not_ready', `${path} is open to other users (mode ${octal}): run chmod 600 ${path}`, {
        op: 'key_file',
      });
    }
    text = await file.readFile('utf8');
  } catch (error) {
    if (error instanceof RonError) throw error;
    throw new RonError('not_ready', `${path} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`, {
      op: 'key_file',
    });
  }
  return text.trim();
}
