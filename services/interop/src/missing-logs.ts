/**
 * Detects that the directory of the spool or of the receipts was lost since the last start.
 *
 *     <data_dir>/logs     "spool kept" and "receipts kept" once both exist; "lost" instead of "kept" after a loss
 *
 * Contract: a log whose directory is gone, although it existed at an earlier start, is reported at this start and at every later
 * one, until the operator deletes the file `logs`. The loss is recorded before the directory is created again, so that no crash
 * hides it. A disk that cannot be read or written never fails the start. A file that cannot be read is never replaced: it may
 * record a loss, which the next start reports. A loss that such a start detects is reported by this start only.
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
  readonly #lost = new Set<KeptLog>();

  private constructor(init: MissingLogsInit) {
    this.#init = init;
  }

  /** Before the logs are opened, which creates their directories. */
  static async open(init: MissingLogsInit): Promise<MissingLogs> {
    const { fs, dir, onMissing } = init;
    await removeLeftOver(fs, join(dir, FILE)).catch(() => undefined);
    const missing = new MissingLogs(init);
    // The file is written once both logs exist: one that cannot be read says so too.
    const text = await missing.#read().catch(() => LOGS.map((log) => `${log} kept`).join());
    const kept = LOGS.filter((log) => text.includes(`${log} kept`));
    const gone = await Promise.all(kept.map(async (log) => ((await exists(fs, dir, log)) ? [] : [log])));
    for (const log of [...lostIn(text), ...gone.flat()]) missing.#lost.add(log);
    if (gone.flat().length > 0) await missing.record();
    for (const log of missing.#lost) onMissing(missing.problem(log)!);
    return missing;
  }

  /** After the logs were opened: their directories exist. */
  async record(): Promise<void> {
    const { fs, dir, warn } = this.#init;
    const path = join(dir, FILE);
    try {
      const before = await this.#read();
      // `open` may have failed to read it.
      for (const log of lostIn(before)) this.#lost.add(log);
      const text = LOGS.map((log) => `${log} ${this.#lost.has(log) ? 'lost' : 'kept'}\n`).join('');
      if (before !== text) await writeWhole(fs, path, Buffer.from(text));
    } catch {
      warn(`failed to write ${path}: a lost directory of the spool or the receipts would not be detected`);
    }
  }

  /** Until the operator deletes the file. */
  problem(log: KeptLog): string | undefined {
    if (!this.#lost.has(log)) return undefined;
    return `the directory ${log} was missing at a start: ${EFFECTS[log]}; restore it, then delete the file ${FILE} beside it`;
  }

  /** Empty if there is no file. */
  async #read(): Promise<string> {
    const { fs, dir } = this.#init;
    return (await readWhole(fs, join(dir, FILE), FILE_BYTES_MAX))?.toString() ?? '';
  }
}

const lostIn = (text: string): readonly KeptLog[] => LOGS.filter((log) => text.includes(`${log} lost`));

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
