/** Reports the size of the audit log and the room for it, from the directory of kms. */
import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { reserveBytes } from '@ron/log';
import { humanSize } from '../format.ts';
import type { Home } from '../home.ts';
import type { Finding } from './finding.ts';

const BLOCK_BYTES = 512;
/** Warns below this multiple of the reserve of a disk. */
const SCARCE = 4;

/** No finding if there is no log: kms creates it. */
export async function checkAuditLog(home: Home, signal: AbortSignal): Promise<Finding[]> {
  const dir = join(home.of('kms').data, 'audit');
  try {
    const files = await Promise.all(['entries', 'hashes.0'].map((name) => stat(join(dir, name))));
    const used_bytes = files.reduce((sum, { blocks }) => sum + blocks * BLOCK_BYTES, 0);
    const { bavail, blocks, bsize } = await statfs(dir);
    const { dirSource } = await import('@ron/tlog');
    await using source = await dirSource(dir);
    const first = (await source.mark(signal))?.before ?? 0;
    const free_bytes = bavail * bsize;
    const room = `${humanSize(used_bytes)}, from entry ${first} on, ${humanSize(free_bytes)} free`;
    if (free_bytes > SCARCE * reserveBytes(blocks * bsize)) return [{ level: 'ok', what: `audit log: ${room}` }];
    const fix = 'free disk space, or remove old entries with `ron audit prune`';
    return [{ level: 'warn', what: `audit log is nearly full: ${room}`, fix }];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    const fix = 'run `ron audit verify`';
    return [{ level: 'warn', what: `audit log in ${dir} cannot be read`, fix }];
  }
}
