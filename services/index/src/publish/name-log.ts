/**
 * The transparency log of this node: the source of truth for own names, trust, pins, admin calls and forks.
 *
 * Contract: an appended change is durable before the call returns. `catchUp` applies to the database every entry that it lacks;
 * it also fills a lost or older database. A database that has applied entries which the log lacks shows that the log is older or
 * foreign (a rollback): `problem` explains it, and the database keeps its state. An absent log beside a database with state begins
 * anew under another origin, with the own names, trust and pins of the database as its first entries. A damaged or unreadable log does
 * not fail the start: `problem` explains it, appends are refused with `not_ready`, and names resolve from the database. Another
 * process on the directory fails the start (`conflict`).
 * Bound: one bundle of 256 entries in memory. Cancellation: `catchUp` between two bundles; an append runs to its end.
 * Checkpoints are signed by the node key, at most one per `CHECKPOINT_MS`, and at the close.
 */
import { isRonError, NEVER, RonError, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { leafHash, openOrigin, TransparencyLog } from '@ron/tlog/log';
import { checkpointSigner, type NodeKey } from '../node-key.ts';
import type { IndexStore, LogChange, LogPosition } from '../store/index-store.ts';

import { isReplacementEnd, isReplacementOf, replacementEntries } from './replacement.ts';
import { decodeLogEntry, encodeLogEntry, type LogEntry } from './log-entry.ts';
import { isSame } from './rules.ts';

/** Time after which a new checkpoint is due. */
export const CHECKPOINT_MS = 1000;
/** An append that takes longer is reported as a problem. */
const APPEND_MS_MAX = 2000;

export interface NameLogInit {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly key: NodeKey;
  readonly store: Pick<IndexStore, 'apply' | 'applied' | 'names' | 'pins' | 'resetLog' | 'trust'>;
  /** Called when the log is found damaged or older than the database, and when it is replaced. */
  readonly warn: (message: string, error?: unknown) => void;
  readonly signal: AbortSignal;
}

export class NameLog implements AsyncDisposable {
  readonly #init: NameLogInit;
  /** Undefined if it could not be opened. */
  readonly log: TransparencyLog | undefined;
  #problem: string | undefined;
  #append_began_ms: number | undefined;
  #checkpoint_ms = -Infinity;

  private constructor(init: NameLogInit, log: TransparencyLog | undefined, problem: string | undefined) {
    this.#init = init;
    this.log = log;
    this.#problem = problem;
  }

  static async open(init: NameLogInit): Promise<NameLog> {
    const { dir, fs, key, signal, warn } = init;
    try {
      const origin = await openOrigin(fs, dir, `${key.peer_id}/names`);
      const onCut = (bytes: number): void => warn(`cut ${bytes} bytes of an interrupted write off the name log`);
      const signers = [checkpointSigner(origin, key)];
      return new NameLog(init, await TransparencyLog.open({ dir, fs, origin, signers, signal, onCut }), undefined);
    } catch (error) {
      // A second process, or a defect.
      if (!isRonError(error) || error.code === 'conflict' || error.code === 'internal') throw error;
      signal.throwIfAborted();
      warn('cannot open the name log: names resolve, but none can be published', error);
      return new NameLog(init, undefined, `the name log cannot be used: ${error.message}`);
    }
  }

  /** Why changes are refused; undefined if they are accepted. */
  get problem(): string | undefined {
    if (this.#problem !== undefined) return this.#problem;
    const began_ms = this.#append_began_ms;
    if (began_ms === undefined || sched.now_ms() - began_ms < APPEND_MS_MAX) return undefined;
    return 'the disk of the name log does not respond';
  }

  get size(): number {
    return this.log?.size ?? 0;
  }

  /** Appends changes; resolves with the position behind them when they are durable. */
  async append(entries: readonly LogEntry[]): Promise<LogPosition> {
    const log = this.#usable();
    const encoded = entries.map(encodeLogEntry);
    this.#append_began_ms = sched.now_ms();
    try {
      const { first } = await log.append(encoded, NEVER);
      return { size: first + encoded.length, leaf: leafHash(encoded.at(-1)!) };
    } catch (error) {
      if (isRonError(error, 'audit_integrity')) this.#damaged(error);
      throw error;
    } finally {
      this.#append_began_ms = undefined;
    }
  }

  /** Whether the database lacks entries of the log. */
  get isAhead(): boolean {
    return this.log !== undefined && this.#problem === undefined && this.#init.store.applied.size !== this.log.size;
  }

  /** Applies the entries that the database lacks. Returns whether there were any. */
  async catchUp(signal: AbortSignal): Promise<boolean> {
    const { log } = this;
    if (log === undefined) return false;
    const { store } = this.#init;
    try {
      if (!(await this.#isPrefix(log, store.applied))) {
        if (await this.#isReplacement(log, store.applied)) await this.#replace(log, signal);
        else this.#rolledBack(log, store.applied);
        return true;
      }
      const { size } = store.applied;
      if (size === log.size) return false;
      await this.#apply(log, size, signal);
      return true;
    } catch (error) {
      if (!isRonError(error, 'audit_integrity')) throw error;
      this.#damaged(error);
      return true;
    }
  }

  /** Whether no checkpoint covers the last entries. */
  get isUnsigned(): boolean {
    return this.log !== undefined && this.#problem === undefined && this.log.checkpoint?.size !== this.log.size;
  }

  /** Signs the appended entries if a checkpoint is due. */
  async signIfDue(): Promise<void> {
    if (!this.isUnsigned || sched.now_ms() - this.#checkpoint_ms < CHECKPOINT_MS) return;
    this.#checkpoint_ms = sched.now_ms();
    await this.sign();
  }

  /** A checkpoint that fails is not an error of a publish: the entries are durable without it. */
  async sign(): Promise<void> {
    if (!this.isUnsigned || this.size === 0) return;
    await this.log!.writeCheckpoint(NEVER).catch((error: unknown) => {
      this.#init.warn('failed to sign a checkpoint of the name log', error);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sign();
    await this.log?.close();
  }

  async #isPrefix(log: TransparencyLog, { size, leaf }: LogPosition): Promise<boolean> {
    if (size === 0) return true;
    if (size > log.size || leaf === undefined) return false;
    return isSame(leafHash(await log.entry(size - 1)), leaf);
  }

  /** Whether the log begins anew after the one that the database has applied. */
  async #isReplacement(log: TransparencyLog, applied: LogPosition): Promise<boolean> {
    if (log.size === 0) return log.checkpoint === undefined;
    return isReplacementOf(this.#changeAt(0, await log.entry(0)), applied);
  }

  /** Interrupted, it is repeated as a whole: the carried entries are idempotent. */
  async #replace(log: TransparencyLog, signal: AbortSignal): Promise<void> {
    const { store, warn } = this.#init;
    warn('the name log is absent: a new one begins with the names, trust and pins of the database');
    if (!(await this.#isCarried(log, signal))) {
      for await (const entries of replacementEntries(store)) {
        signal.throwIfAborted();
        await this.append(entries);
      }
    }
    await store.resetLog();
    await this.#apply(log, 0, signal);
  }

  async #isCarried(log: TransparencyLog, signal: AbortSignal): Promise<boolean> {
    for await (const { first, entries } of log.entries(0, signal)) {
      if (entries.some((entry, at) => isReplacementEnd(this.#changeAt(first + at, entry)))) return true;
    }
    return false;
  }

  #rolledBack(log: TransparencyLog, { size }: LogPosition): void {
    const problem = `the name log (${log.size} entries) lacks entries that the database has applied (${size})`;
    this.#problem = `${problem}: restore the newest name-log, or move it away and restart`;
    this.#init.warn(`${problem}: names resolve, but none can be published`);
  }

  async #apply(log: TransparencyLog, from: number, signal: AbortSignal): Promise<void> {
    for await (const { first, entries } of log.entries(from, signal)) {
      const changes = entries.map((entry, at) => this.#changeAt(first + at, entry));
      await this.#init.store.apply(changes, { size: first + entries.length, leaf: leafHash(entries.at(-1)!) });
    }
  }

  #changeAt(index: number, bytes: Uint8Array): LogChange {
    const entry = decodeLogEntry(bytes);
    if (entry !== undefined) return entry.change;
    throw new RonError('audit_integrity', `entry ${index} is unknown to this version: update ron`);
  }

  #damaged(error: RonError): void {
    this.#problem = `the name log is damaged: ${error.message}`;
    this.#init.warn('the name log is damaged: names resolve, but none can be published', error);
  }

  #usable(): TransparencyLog {
    if (this.log === undefined || this.#problem !== undefined) throw new RonError('not_ready', this.#problem!);
    return this.log;
  }
}
