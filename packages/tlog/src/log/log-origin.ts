/**
 * The origin of a log: its name in checkpoints, in the file `origin` beside the entries.
 *
 * Contract: each log that begins gets an origin of its own, so a key never signs two trees under one name, even if a log was
 * lost. A log that signed a checkpoint before there were such files keeps `base`.
 *
 *     const origin = await openOrigin(fs, dir, `${peer_id}/names`); // 12D3KooW.../names/6fcb1d6fd86f8e62
 */
import { join } from 'node:path';
import { RonError, sched } from '@ron/kernel';
import { readWhole, rethrowDisk, writeWhole, type FileSystem } from '@ron/log';
import { CHECKPOINT } from './checkpoint-file.ts';

const FILE = 'origin';
const ORIGIN_BYTES_MAX = 256;
const SUFFIX_BYTES = 8;

/** Creates the directory and the file if there are none. Rejects with `audit_integrity` if the file is damaged. */
export async function openOrigin(fs: FileSystem, dir: string, base: string): Promise<string> {
  try {
    await fs.makeDir(dir);
    const stored = (await readWhole(fs, join(dir, FILE), ORIGIN_BYTES_MAX))?.toString();
    if (stored !== undefined) return checked(stored, base);
    if ((await fs.list(dir)).includes(CHECKPOINT)) return base;
    const origin = `${base}/${Buffer.from(sched.randomBytes(SUFFIX_BYTES)).toString('hex')}`;
    await writeWhole(fs, join(dir, FILE), Buffer.from(origin));
    return origin;
  } catch (error) {
    return rethrowDisk(error);
  }
}

function checked(stored: string, base: string): string {
  if (stored.startsWith(`${base}/`) && /^[0-9a-f]{16}$/.test(stored.slice(base.length + 1))) return stored;
  throw new RonError('audit_integrity', `the origin of the log is damaged or does not belong to ${base}`);
}
