/**
 * The room for the audit log: a resource that tenants share and that a flood cannot use up.
 *
 *     | written | shared by all entries | reserve: sign, create, rotate, delete | last part: checkpoints, gaps, pruning |
 *
 * Contract: `refusal` states why an entry must not be written, before the operation runs. Ordinary entries are refused when
 * only the reserve is left. While room is scarce, one tenant may add at most as many bytes as are still free, so half of it
 * is left for the second tenant, a quarter for the third. Keys and stored answers are written to the same disk and count
 * likewise (`reserve`); their removal does not lower the count. The counts survive a restart (`load`, `save`) and begin
 * again after a pruning, or when there is plenty of room.
 * Bound: `HOLDERS_MAX` counts; overflow: further tenants share one. The free space is measured outside of the event loop,
 * at most a second ago; bytes written since are subtracted. Without a measurement nothing is refused.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { readWhole, Reserve, reserveBytes, writeWhole, type FileSystem } from '@ron/log';

/** `essential` entries may use the reserve. */
export type Need = 'essential' | 'ordinary';

export interface LogSpaceInit {
  /** Undefined if it could not be opened. */
  readonly log: { readonly fs: FileSystem; readonly dir: string; readonly bytes: number } | undefined;
  /** The largest reserve; a small disk has a sixteenth. */
  readonly reserve_bytes: number;
  /** The limit of the log itself. Default: the disk. */
  readonly bytes_max?: number | undefined;
}

const HOLDERS_MAX = 1024;
/** Room is scarce below this multiple of the reserve. */
const SCARCE = 16;
/** Room is plentiful again above this multiple of the scarce room. */
const PLENTY = 1.25;
/** Of the reserve, for checkpoints, gaps and the entry of a pruning. */
const LAST_PART = 1 / 8;
const RETRY_AFTER_MS = 10_000;
const SHARES = 'shares';
const SHARES_BYTES_MAX = 256 * 1024;
const OTHERS = '*';

export class LogSpace {
  readonly #init: LogSpaceInit;
  readonly #disk: Reserve;
  /** Bytes by tenant since room became scarce. */
  readonly #held = new Map<string, number>();
  #isDirty = false;
  /** Bytes of reservations that have not ended. */
  #reserved_bytes = 0;

  constructor(init: LogSpaceInit) {
    this.#init = init;
    const { log, reserve_bytes } = init;
    this.#disk = new Reserve(async () => await log?.fs.room?.(log.dir), reserve_bytes);
  }

  /** Bytes that may still be written, including the reserve; Infinity if unknown. */
  get free_bytes(): number {
    const { bytes_max, log } = this.#init;
    const disk_bytes = this.#disk.free_bytes - this.#reserved_bytes;
    return Math.min(disk_bytes, bytes_max === undefined ? Infinity : bytes_max - (log?.bytes ?? 0));
  }

  get reserve_bytes(): number {
    const { bytes_max, reserve_bytes } = this.#init;
    const ofLog = bytes_max === undefined ? Infinity : reserveBytes(bytes_max, reserve_bytes);
    return this.#disk.free_bytes === Infinity ? Math.min(ofLog, reserve_bytes) : Math.min(this.#disk.bytes, ofLog);
  }

  /** Bytes that ordinary entries may still use. */
  get shared_bytes(): number {
    return Math.max(0, this.free_bytes - this.reserve_bytes);
  }

  get isScarce(): boolean {
    return this.shared_bytes < SCARCE * this.reserve_bytes;
  }

  /** Why only essential entries are written. */
  get problem(): string | undefined {
    this.#disk.isReached(0);
    if (this.shared_bytes > 0) return undefined;
    const left = `${Math.max(0, Math.floor(this.free_bytes / 1024))} KiB`;
    return `only the reserve is left for the audit log (${left}): free disk space, or run \`ron audit prune\``;
  }

  /** Why `bytes` more of this holder must not be written; undefined if they may. */
  refusal(need: Need, holder: string, bytes: number): RonError | undefined {
    // Starts a measurement when one is due.
    this.#disk.isReached(bytes);
    const free = this.free_bytes;
    if (free === Infinity) return undefined;
    const reserve = this.reserve_bytes;
    const usable = free - (need === 'essential' ? reserve * LAST_PART : reserve);
    if (usable < bytes) return degraded(this.problem ?? 'the audit log has no room left');
    if (!this.isScarce) return undefined;
    const held = this.#held.get(this.#keyOf(holder)) ?? 0;
    if (held + bytes <= usable) return undefined;
    return degraded(`the share of ${holder} in the audit log is used: free disk space, or run \`ron audit prune\``);
  }

  /** Counts the bytes of an entry for its holder. */
  hold(holder: string, bytes: number): void {
    if (!this.isScarce) {
      if (this.#held.size > 0 && this.shared_bytes > PLENTY * SCARCE * this.reserve_bytes) this.forget();
      return;
    }
    const key = this.#keyOf(holder);
    this.#held.set(key, Math.max(0, (this.#held.get(key) ?? 0) + bytes));
    this.#isDirty = true;
  }

  /**
   * Reserves room on the disk for bytes outside of the log. Throws if the holder must not write them. Call the result once,
   * with the number of bytes that were written.
   */
  reserve(need: Need, holder: string, bytes: number): (written_bytes: number) => void {
    const refusal = this.refusal(need, holder, bytes);
    if (refusal !== undefined) throw refusal;
    this.#reserved_bytes += bytes;
    this.hold(holder, bytes);
    return (written_bytes) => {
      this.#reserved_bytes -= bytes;
      this.hold(holder, written_bytes - bytes);
      this.wrote(written_bytes);
    };
  }

  /** Bytes were written to the disk. */
  wrote(bytes: number): void {
    this.#disk.wrote(bytes);
  }

  /** Begins to count again, and measures the disk. */
  forget(): void {
    this.#held.clear();
    this.#isDirty = true;
    void this.#disk.measure();
  }

  /** Reads the counts of an earlier process. A file that cannot be read counts as none. */
  async load(): Promise<void> {
    await this.#disk.measure();
    const { log } = this.#init;
    if (log === undefined) return;
    const bytes = await readWhole(log.fs, join(log.dir, SHARES), SHARES_BYTES_MAX).catch(() => undefined);
    for (const [holder, held] of sharesIn(bytes).slice(0, HOLDERS_MAX + 1)) this.#held.set(holder, held);
  }

  /** Stores the counts if they have changed. Never rejects: a crash then forgets a part of them. */
  async save(): Promise<void> {
    const { log } = this.#init;
    if (!this.#isDirty || log === undefined) return;
    this.#isDirty = false;
    const text = JSON.stringify(Object.fromEntries(this.#held));
    await writeWhole(log.fs, join(log.dir, SHARES), Buffer.from(text)).catch(() => (this.#isDirty = true));
  }

  #keyOf(holder: string): string {
    return this.#held.has(holder) || this.#held.size < HOLDERS_MAX ? holder : OTHERS;
  }
}

function sharesIn(bytes: Uint8Array | undefined): [string, number][] {
  if (bytes === undefined) return [];
  try {
    const shares = JSON.parse(Buffer.from(bytes).toString()) as Record<string, unknown>;
    return Object.entries(shares).filter((each): each is [string, number] => Number.isSafeInteger(each[1]));
  } catch {
    return [];
  }
}

function degraded(reason: string): RonError {
  return new RonError('degraded_audit', reason, { retry_after_ms: RETRY_AFTER_MS });
}
