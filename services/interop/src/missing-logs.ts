/**
 * Detects that the directory of the spool or of the receipts was lost since the last start.
 *
 *     <data_dir>/logs     "spool kept" and "receipts kept" once both exist; "lost" instead of "kept" after a loss
 *
 * Contract: a log whose directory is gone, although it existed at an earlier start, is reported at this start and at every later
 * one, until the operator deletes the file `logs`. The loss is recorded before the directory is created again, so that no crash
 * hides it. A disk that cannot be written never fails the start.
 * Not detected: a loss of all of the data directory, or of segments inside of a log.
 * Bound: one small file.
 */
import { join } from 'node:path';
import { readWhole, removeLeftOver, writeWhole, type FileSystem } from '@ron/log';

const LOGS = ['spool', 'receipts'] as const;
type KeptLog = (typeof LOGS)[number];

export interface MissingLogsInit {
  /** The data directory. It exists. */
  readonly dir: string;
  readonly fs: FileSystem;
  readonly onMissing: (problem: string) => void;
  readonly warn: (message: string) => void;
}

const FILE = 'logs';
const FILE_BYTES_MAX = 4096;
const EFFECTS: Readonly<Record<KeptLog, string>> = {
  spool: 'accepted webhooks that waited in it are not delivered',
  receipts: 'the receipts in it cannot be read',
};

export class MissingLogs {
  readonly #init: MissingLogsInit;
  readonly #lost: ReadonlySet<KeptLog>;

  private constructor(init: MissingLogsInit, lost: ReadonlySet<KeptLog>) {
    this.#init = init;
    this.#lost = lost;
  }

  /** Before the logs are opened, which creates their directories. */
  static async open(init: MissingLogsInit): Promise<MissingLogs> {
    const { fs, dir, onMissing } = init;
    await removeLeftOver(fs, join(dir, FILE)).catch(() => undefined);
    const before = (await readWhole(fs, join(dir, FILE), FILE_BYTES_MAX).catch(() => undefined))?.toString() ?? '';
    const wereKept = LOGS.filter((log) => before.includes(`${log} kept`));
    const gone = await Promise.all(wereKept.map(async (log) => ((await exists(fs, dir, log)) ? [] : [log])));
    const known = LOGS.filter((log) => before.includes(`${log} lost`));
    const missing = new MissingLogs(init, new Set([...known, ...gone.flat()]));
    if (gone.flat().length > 0) await missing.record();
    for (const log of missing.#lost) onMissing(missing.problem(log)!);
    return missing;
  }

  /** After the logs were opened: their directories exist. */
  async record(): Promise<void> {
    const { fs, dir, warn } = this.#init;
    const path = join(dir, FILE);
    const text = LOGS.map((log) => `${log} ${this.#lost.has(log) ? 'lost' : 'kept'}\n`).join('');
    try {
      if ((await readWhole(fs, path, FILE_BYTES_MAX))?.toString() === text) return;
      await writeWhole(fs, path, Buffer.from(text));
    } catch {
      warn(`failed to write ${path}: a lost directory of the spool or the receipts would not be detected`);
    }
  }

  /** Until the operator deletes the file. */
  problem(log: KeptLog): string | undefined {
    if (!this.#lost.has(log)) return undefined;
    return `the directory ${log} was missing at a start: ${EFFECTS[log]}; restore it, then delete the file ${FILE} beside it`;
  }
}

/** A log keeps its segments in a directory of their own. */
async function exists(fs: FileSystem, dir: string, log: KeptLog): Promise<boolean> {
  try {
    await fs.list(join(dir, log, 'segments'));
    return true;
  } catch (error) {
    // One that cannot be read is not lost.
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}
