/**
 * The fill log on disk, or in memory in amnesia.
 *
 * Contract: an appended entry is durable before the call returns. A damaged, older or foreign log does not fail the start:
 * `problem` explains it, appends are refused with `not_ready`, and cached assets are served. Another process on the directory
 * fails the start (`conflict`). After `CHECKPOINT_MS` without a checkpoint `work` signs the new entries, and a pruning signs its
 * announcement at once; the close signs the last ones. A signer that is away or slow delays checkpoints, never appends. After
 * a failed append, `work` appends an entry until one succeeds: `problem` ends with the outage, even without another fill.
 * Bound: above `bytes_max` at least the older half of the entries is removed, in whole bundles, which the log itself announces.
 * Overflow: where the disk cannot free them, or without a signer, appends are refused with `storage_full` at twice the bound.
 * Cancellation: a waiting append leaves with its signal; one that has begun completes.
 */
import { join } from 'node:path';
import { isRonError, RonError, sched, type Deadline } from '@ron/kernel';
import { rethrowDisk, writeWhole, type FileSystem } from '@ron/log';
import type { AuditProof } from '@ron/proto';
import {
  BUNDLE_ENTRIES,
  KeyType,
  noteSigner,
  openOrigin,
  proveEntry,
  TransparencyLog,
  type NoteSigner,
} from '@ron/tlog/log';
import { encodePrune, encodeResume } from './fill-entry.ts';
import type { FillKey, FillKeySource } from './fill-key.ts';
import type { FillLog } from './fill-log.ts';
import type { KnownCheckpointFile } from './known-checkpoint.ts';

/** Time after which a new checkpoint is due. */
export const CHECKPOINT_MS = 1000;
/** A checkpoint that is later than this is reported. */
const LATE_MS = 10_000;
/** An append that takes longer is reported. */
const APPEND_MS_MAX = 2000;
const ORIGIN = 'edge/fills';

export interface FillLogInit {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly key: FillKeySource;
  /** Undefined in amnesia. */
  readonly known: KnownCheckpointFile | undefined;
  readonly bytes_max: number;
  /** Of a checkpoint. */
  readonly deadline: () => Deadline;
  readonly warn: (message: string, error?: unknown) => void;
  readonly signal: AbortSignal;
}

interface Opened {
  readonly log: TransparencyLog;
  readonly origin: string;
  /** The log reads it at each checkpoint: empty until kms has created the key. */
  readonly signers: NoteSigner[];
}

export class SignedFillLog implements FillLog, AsyncDisposable {
  readonly #init: FillLogInit;
  readonly #opened: Opened | undefined;
  #problem: string | undefined;
  #append_began_ms: number | undefined;
  #append_failure: string | undefined;
  #worked_ms = -Infinity;
  /** Since when an entry has been waiting for a checkpoint. */
  #unsigned_ms: number | undefined;
  #sign_failure: string | undefined;
  #working: Promise<void> | undefined;
  #canPrune = true;

  private constructor(init: FillLogInit, opened: Opened | undefined, problem: string | undefined) {
    this.#init = init;
    this.#opened = opened;
    this.#problem = problem;
    if (this.isUnsigned) this.#unsigned_ms = sched.now_ms();
  }

  static async open(init: FillLogInit): Promise<SignedFillLog> {
    const { warn, signal } = init;
    try {
      return new SignedFillLog(init, await openLog(init), undefined);
    } catch (error) {
      // A second process, or a defect.
      if (!isRonError(error) || error.code === 'conflict' || error.code === 'internal') throw error;
      signal.throwIfAborted();
      warn('cannot open the fill log: cached assets are served, but none are added', error);
      return new SignedFillLog(init, undefined, problemText(error));
    }
  }

  get problem(): string | undefined {
    return this.#problem ?? (this.#append_failure && `fills are not cached: ${this.#append_failure}`);
  }

  /** For the gate: why fills are not logged, or not proven. */
  get warning(): string | undefined {
    if (this.#problem !== undefined) return this.#problem;
    const now_ms = sched.now_ms();
    if (now_ms - (this.#append_began_ms ?? Infinity) > APPEND_MS_MAX)
      return 'the disk of the fill log does not respond';
    if (this.problem !== undefined) return this.problem;
    const late_ms = now_ms - (this.#unsigned_ms ?? Infinity);
    if (late_ms < LATE_MS) return undefined;
    const why = this.#sign_failure === undefined ? '' : `: ${this.#sign_failure}`;
    return `the fill log has had no signed checkpoint for ${Math.floor(late_ms / 1000)} s${why}`;
  }

  get served(): TransparencyLog | undefined {
    return this.#opened?.log;
  }

  get keys(): { readonly origin: string; readonly vkeys: readonly string[] } | undefined {
    if (this.#opened === undefined) return undefined;
    const { origin, signers } = this.#opened;
    return { origin, vkeys: signers.map(({ vkey }) => vkey) };
  }

  get size(): number {
    return this.#opened?.log.size ?? 0;
  }

  get bytes(): number {
    return this.#opened?.log.bytes ?? 0;
  }

  /** Entries that no checkpoint covers. */
  get unsigned(): number {
    return this.size - (this.#opened?.log.checkpoint?.size ?? 0);
  }

  get isUnsigned(): boolean {
    return this.#problem === undefined && this.unsigned > 0;
  }

  /** Whether `work` is to be called again within `CHECKPOINT_MS`. */
  get isWorkPending(): boolean {
    if (this.#opened === undefined || this.#problem !== undefined) return false;
    return this.unsigned > 0 || this.#append_failure !== undefined || this.#prunable(this.#opened.log) !== undefined;
  }

  async append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<number> {
    const opened = this.#usable();
    this.#append_began_ms = sched.now_ms();
    try {
      return await this.#append(opened, entries, signal);
    } finally {
      this.#append_began_ms = undefined;
    }
  }

  async proof(index: number): Promise<AuditProof | undefined> {
    const { log } = this.#usable();
    if (index >= (log.checkpoint?.size ?? 0)) return undefined;
    return await proveEntry(log, index);
  }

  /** Begins a checkpoint, a pruning or a probe if one is due and none is in progress. Never throws; `close` waits for it. */
  work(): void {
    if (!this.isWorkPending || this.#working !== undefined) return;
    if (sched.now_ms() - this.#worked_ms < CHECKPOINT_MS) return;
    this.#working = this.#work().finally(() => (this.#working = undefined));
  }

  /** Signs the last entries, within the deadline of a checkpoint, and closes the files. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#working;
    if (this.isUnsigned) await this.#work();
    await this.#opened?.log.close();
  }

  async #append(opened: Opened, entries: readonly Uint8Array[], signal: AbortSignal): Promise<number> {
    try {
      this.#requireRoom(opened.log);
      const { first } = await opened.log.append(entries, signal);
      this.#append_failure = undefined;
      this.#unsigned_ms ??= sched.now_ms();
      return first;
    } catch (error) {
      this.#appendFailed(error);
      throw error;
    }
  }

  /** Never rejects: the entries are durable without a checkpoint. */
  async #work(): Promise<void> {
    const { deadline, warn } = this.#init;
    const opened = this.#opened!;
    this.#worked_ms = sched.now_ms();
    using budget = deadline();
    try {
      // [edge I-4] A slow kms ends here; the next checkpoint covers the same entries.
      await budget.run(async (signal) => {
        await this.#probe(opened, signal);
        if (this.isUnsigned) await this.#checkpoint(opened, signal);
        await this.#pruneIfLarge(opened, signal);
      });
    } catch (error) {
      if (this.#sign_failure === undefined) warn('failed to sign a checkpoint of the fill log', error);
      this.#sign_failure = messageOf(error);
      if (isRonError(error, 'audit_integrity')) this.#damaged(error);
    }
  }

  /** Without it, `problem` would keep fills away from the log after the disk has recovered. */
  async #probe(opened: Opened, signal: AbortSignal): Promise<void> {
    if (this.#append_failure === undefined) return;
    // A failure is reported by `problem`. The checkpoint does not depend on it.
    await this.#append(opened, [encodeResume(sched.wall_ms())], signal).catch(() => undefined);
  }

  async #checkpoint(opened: Opened, signal: AbortSignal): Promise<void> {
    const { key, known } = this.#init;
    const { log, signers } = opened;
    if (signers.length === 0) await addSigner(this.#init, opened, await key.create(signal));
    await log.writeCheckpoint(signal, { beforePublish: async ({ text }) => await known?.write(text) });
    this.#sign_failure = undefined;
    this.#unsigned_ms = this.isUnsigned ? this.#worked_ms : undefined;
  }

  /** The end of the entries to remove: half of them, rounded up to a whole bundle; undefined if there is none or no need. */
  #prunable({ bytes, first, size }: TransparencyLog): number | undefined {
    if (bytes <= this.#init.bytes_max || !this.#canPrune) return undefined;
    const bundles = Math.min(Math.ceil((first + size) / 2 / BUNDLE_ENTRIES), Math.floor(size / BUNDLE_ENTRIES));
    const before = bundles * BUNDLE_ENTRIES;
    return before > first ? before : undefined;
  }

  /** Removes the older half. The checkpoint in between covers the entry that announces it. */
  async #pruneIfLarge(opened: Opened, signal: AbortSignal): Promise<void> {
    const { warn } = this.#init;
    const { log } = opened;
    const before = this.#prunable(log);
    if (before === undefined) return;
    const { first: entry } = await log.append([encodePrune(before, sched.wall_ms())], signal);
    await this.#checkpoint(opened, signal);
    try {
      await log.prune({ before, entry }, signal);
    } catch (error) {
      signal.throwIfAborted();
      // Each try appends an entry.
      this.#canPrune = false;
      warn('cannot prune the fill log: its disk cannot free a part of a file', error);
    }
  }

  #requireRoom(log: TransparencyLog): void {
    const { bytes_max } = this.#init;
    if (log.bytes <= 2 * bytes_max) return;
    throw new RonError('storage_full', `the fill log has ${log.bytes} bytes: raise fill.log_bytes_max`);
  }

  #appendFailed(error: unknown): void {
    if (isRonError(error, 'audit_integrity')) return this.#damaged(error);
    if (this.#append_failure === undefined) this.#init.warn('failed to append to the fill log', error);
    this.#append_failure = messageOf(error);
  }

  #damaged(error: RonError): void {
    this.#problem = problemText(error);
    this.#init.warn('the fill log is damaged: cached assets are served, but none are added', error);
  }

  #usable(): Opened {
    if (this.#opened === undefined || this.#problem !== undefined) throw new RonError('not_ready', this.#problem!);
    return this.#opened;
  }
}

async function openLog(init: FillLogInit): Promise<Opened> {
  const { dir, fs, key, known, signal, warn } = init;
  const origin = await openOrigin(fs, dir, ORIGIN);
  const found = await known?.read(origin);
  const signers: NoteSigner[] = [];
  const loaded = await key.load();
  if (loaded !== undefined) signers.push(signerOf(origin, loaded));
  const log = await TransparencyLog.open({
    dir,
    fs,
    origin,
    signers,
    known: found === undefined ? [] : [found],
    signal,
    onCut: (bytes) => warn(`cut ${bytes} bytes of an interrupted write off the fill log`),
  });
  const opened = { log, origin, signers };
  if (loaded !== undefined) await writeKeys(init, opened).catch((error: unknown) => warn(KEYS_NOT_WRITTEN, error));
  return opened;
}

const KEYS_NOT_WRITTEN = 'failed to store the public key of the fill log';

async function addSigner(init: FillLogInit, opened: Opened, key: FillKey): Promise<void> {
  const signer = signerOf(opened.origin, key);
  await writeKeys(init, { ...opened, signers: [signer] });
  opened.signers.push(signer);
}

/** `ron audit verify` reads the file `vkeys`. */
async function writeKeys({ fs, dir }: FillLogInit, { signers }: Opened): Promise<void> {
  const text = signers.map(({ vkey }) => `${vkey}\n`).join('');
  await writeWhole(fs, join(dir, 'vkeys'), Buffer.from(text)).catch(rethrowDisk);
}

const signerOf = (name: string, key: FillKey): NoteSigner =>
  noteSigner({ name, type: KeyType.ed25519, spki: key.spki, sign: (message, signal) => key.sign(message, signal) });

const ADVICE = 'restore the newest `fills`, or move `fills` and `fills.checkpoint` away and restart';
const problemText = (error: RonError): string => `the fill log cannot be used: ${error.message}: ${ADVICE}`;
const messageOf = (error: unknown): string => (isRonError(error) ? error.message : 'unexpected error');
