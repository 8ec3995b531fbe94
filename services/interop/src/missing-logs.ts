/**
 * Detects that the spool or the receipts, or segments of them, were lost since the last start.
 *
 *     <data_dir>/logs               "spool kept" and "receipts kept" once both exist; "lost" instead of "kept" after a loss
 *     <data_dir>/spool.extent       the segments of the spool (log-extent.ts); `receipts.extent` those of the receipts
 *
 * Contract: a log whose directory is gone although it existed at an earlier start, or which lacks segments or bytes of its
 * extent, is reported at this start and at every later one, until the operator deletes the file `logs`: the next start accepts
 * the logs as they are. The loss is recorded before the directory is created again and before the extent is replaced, so that
 * no crash hides it. A disk that cannot be read or written never fails the start. A file that cannot be read is never
 * replaced: it may record a loss, which the next start reports. A segment that cannot be read is not lost. A loss that cannot
 * be recorded is reported by this start, and by a later one if it is still there.
 * The extents are written each `NOTE_EVERY_MS`, before a segment is removed, and at the stop.
 * Not detected: a loss of all of the data directory; of records that were appended in the last second before a kill, or since
 * the last stop or removal of a segment before a power failure; of a log whose file `.extent` is missing, damaged or older too.
 * An earlier version of interop does not write the extents: after it removed segments, this one reports them as lost.
 * Bound: three small files. Cancellation: the task ends with `stopping`.
 */
import { join } from 'node:path';
import { orAborted, sleep, type TaskContext } from '@ron/kernel';
import { readWhole, removeLeftOver, segmentSizes, writeWhole, type FileSystem, type SegmentSize } from '@ron/log';
import { LogExtent } from './log-extent.ts';

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
const NOTE_EVERY_MS = 1000;
const EFFECTS: Readonly<Record<KeptLog, string>> = {
  spool: 'accepted webhooks that waited there are not delivered',
  receipts: 'the receipts there cannot be read',
};
/** The loss of a directory; that of segments has a text. */
const DIRECTORY = '';

export class MissingLogs implements AsyncDisposable {
  /** For the logs, which follow them. */
  readonly extents: Readonly<Record<KeptLog, LogExtent>>;
  readonly #init: MissingLogsInit;
  /** With the missing part. */
  readonly #lost = new Map<KeptLog, string>();
  /** Logs without a loss until they are opened. */
  #kept: readonly KeptLog[] = [];

  private constructor(init: MissingLogsInit, extents: Readonly<Record<KeptLog, LogExtent>>) {
    this.#init = init;
    this.extents = extents;
  }

  /** Before the logs are opened, which creates their directories. */
  static async open(init: MissingLogsInit): Promise<MissingLogs> {
    const { fs, dir, onMissing, warn } = init;
    await removeLeftOver(fs, join(dir, FILE)).catch(() => undefined);
    const extentOf = (log: KeptLog): Promise<LogExtent> => LogExtent.open(fs, join(dir, `${log}.extent`));
    const missing = new MissingLogs(init, { spool: await extentOf('spool'), receipts: await extentOf('receipts') });
    // The file is written once both logs exist: one that cannot be read says so too.
    const text = await missing.#read().catch(() => LOGS.map((log) => `${log} kept`).join('\n'));
    for (const [log, loss] of lostIn(text)) missing.#lost.set(log, loss);
    missing.#kept = LOGS.filter((log) => text.includes(`${log} kept`));
    const isLost = await missing.#compare((log) => missing.#sizesOf(log));
    if (isLost) await missing.#recordLosses().catch(() => warn(missing.#notRecorded));
    for (const log of missing.#lost.keys()) onMissing(missing.problem(log)!);
    return missing;
  }

  /** After the logs were opened: their directories exist, and torn tails are cut off. */
  async record(): Promise<void> {
    const { onMissing, warn } = this.#init;
    const before = new Set(this.#lost.keys());
    await this.#compare(async (log) => this.extents[log].found);
    for (const log of this.#lost.keys()) if (!before.has(log)) onMissing(this.problem(log)!);
    try {
      // Before "kept" is recorded: the operator may have accepted a loss, which the earlier extents would show.
      const kept = LOGS.filter((log) => !this.#lost.has(log));
      const begun = await Promise.allSettled(kept.map((log) => this.extents[log].begin()));
      for (const each of begun) if (each.status === 'rejected') throw each.reason;
      await this.#recordLosses();
      for (const log of this.#lost.keys()) await this.extents[log].begin();
    } catch {
      warn(this.#notRecorded);
    }
  }

  /** Until the operator deletes the file. */
  problem(log: KeptLog): string | undefined {
    const loss = this.#lost.get(log);
    if (loss === undefined) return undefined;
    const part =
      loss === DIRECTORY
        ? `the directory ${log} was missing at a start`
        : `a part of the directory ${log} was missing at a start (${loss})`;
    return `${part}: ${EFFECTS[log]}; restore it, then delete the file ${FILE} beside it`;
  }

  /** The task `log_extents`. */
  async run({ stopping, signal }: Pick<TaskContext, 'stopping' | 'signal'>): Promise<void> {
    try {
      for (;;) {
        // [interop I-5] [interop I-6] A stop ends the wait.
        await sleep(NOTE_EVERY_MS, stopping, 'log_extents');
        await orAborted(this.note(), signal);
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    }
  }

  /** Writes the extents that have changed. */
  async note(): Promise<void> {
    await Promise.all(LOGS.map((log) => this.extents[log].note()));
  }

  /** After the logs were closed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(LOGS.map((log) => this.extents[log].close()));
  }

  get #notRecorded(): string {
    const path = join(this.#init.dir, FILE);
    return `failed to write ${path}: a lost directory of the spool or the receipts, or lost segments, would not be detected`;
  }

  /** Adds the losses of kept logs. Whether there is one. */
  async #compare(found: (log: KeptLog) => Promise<readonly SegmentSize[] | 'gone' | undefined>): Promise<boolean> {
    for (const log of this.#kept) {
      const segments = await found(log);
      if (segments === undefined) continue;
      const loss = segments === 'gone' ? DIRECTORY : this.extents[log].lossIn(segments);
      if (loss !== undefined) this.#lost.set(log, loss);
    }
    const kept = this.#kept.filter((log) => !this.#lost.has(log));
    const isLost = kept.length < this.#kept.length;
    this.#kept = kept;
    return isLost;
  }

  /** Undefined if they cannot be read: then they are not lost. */
  async #sizesOf(log: KeptLog): Promise<readonly SegmentSize[] | 'gone' | undefined> {
    const { fs, dir } = this.#init;
    try {
      return await segmentSizes(fs, join(dir, log));
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'gone' : undefined;
    }
  }

  async #recordLosses(): Promise<void> {
    const { fs, dir } = this.#init;
    const before = await this.#read();
    // `open` may have failed to read it.
    for (const [log, loss] of lostIn(before)) this.#lost.set(log, loss);
    const text = LOGS.map((log) => `${log} ${this.#stateOf(log)}\n`).join('');
    if (before !== text) await writeWhole(fs, join(dir, FILE), Buffer.from(text));
  }

  #stateOf(log: KeptLog): string {
    const loss = this.#lost.get(log);
    if (loss === undefined) return 'kept';
    return loss === DIRECTORY ? 'lost' : `lost: ${loss}`;
  }

  /** Empty if there is no file. */
  async #read(): Promise<string> {
    const { fs, dir } = this.#init;
    return (await readWhole(fs, join(dir, FILE), FILE_BYTES_MAX))?.toString() ?? '';
  }
}

function lostIn(text: string): readonly (readonly [KeptLog, string])[] {
  return LOGS.flatMap((log) => {
    const line = text.split('\n').find((each) => each.startsWith(`${log} lost`));
    return line === undefined ? [] : [[log, line.slice(`${log} lost: `.length)] as const];
  });
}
