/**
 * Reads the secret that opens the sealed files of a directory: a key from a file or the environment, or a passphrase.
 *
 * Contract: a secret file is read by `readSecretFile`, which refuses one that other users can access. A generated key is
 * stored beside the files that it seals, which protects copies of single files only; a warning says so.
 */
import { join } from 'node:path';
import { RonError, sched } from '@ron/kernel';
import { readSecretFile, writeWhole, type FileSystem } from '@ron/log';
import { KEK_BYTES, kekFromText, type Unlock } from './sealer.ts';

export const KEK_VARIABLE = 'RON_KEK';

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
