/**
 * Names, trust and pins of this node. See `Names` for the contract and `Publisher` for the order of a change.
 *
 *     PUT --> verify --> quorum (join) --> publish(512) --> publisher --> name log --> database --> cache --> answer
 *     DHT --> adopt --> database; a fork of an own or trusted name takes the way of a PUT
 *
 * Bound: the trust list and the pins are in memory, limited by `TRUST_MAX` and `PINS_MAX`.
 * Cancellation: callers leave with their signal; see `Publisher`.
 */
import { join } from 'node:path';
import { Deadline, isRonError, RonError, Snapshot, type Mpsc } from '@ron/kernel';
import { MemoryDisk, type FileSystem } from '@ron/log';
import { formatTarget } from '@ron/proto';
import type { TransparencyLog } from '@ron/tlog/log';
import type { NodeKey } from '../node-key.ts';
import type { IndexStore, LogChange, StoredName, StoredRecord, TrustedKey } from '../store/index-store.ts';
import { Adoption, type Forked } from './adoption.ts';
import { changePin, changeTrust, publishRecord, recordAction, recordFork } from './changes.ts';
import { NameLog } from './name-log.ts';
import type { Caller, Names, Published } from './names.ts';
import { Publisher, type ChangeRequest, type Job } from './publisher.ts';
import { verifySigned } from './signed-record.ts';
import { SubjectRates } from './subject-rates.ts';
import { TrustList } from './trust-list.ts';

/** The log of amnesia mode. */
const AMNESIA_LOG_BYTES_MAX = 64 * 1024 * 1024;
/** How long a publish waits for the records of other nodes. */
const QUORUM_MS = 1000;
const LOG_DIR = 'name-log';
const NODE: Caller = { subject: 'index', capability_id: 'index' };

export interface NamesInit {
  /** The data directory; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  readonly key: NodeKey;
  readonly store: IndexStore;
  readonly jobs: Mpsc<Job>;
  readonly quotas: () => { readonly names_per_key: number; readonly publish_per_min: number };
  /** Drops cached answers of these targets and detaches their lookups. */
  readonly invalidate: (targets: readonly string[]) => void;
  /** Drops all cached answers: the trust list changed. */
  readonly invalidateAll: () => void;
  /** Values of the name at a quorum of peers. Absent in `standalone`. */
  readonly readQuorum?:
    | ((key: string, label: string, signal: AbortSignal) => Promise<readonly Uint8Array[]>)
    | undefined;
  /** Called for each new own record and each fork, once the log has it: announces it in the DHT. Must not throw. */
  readonly onPublished?: ((record: StoredRecord) => void) | undefined;
  readonly onFork?: ((state: Forked) => void) | undefined;
  readonly warn: (message: string, error?: unknown) => void;
  readonly signal: AbortSignal;
}

/** Opens the name log and brings the database up to date with it. */
export async function openNames(init: NamesInit): Promise<NameService> {
  const { dir, key, store, warn, signal } = init;
  // [index I-12] In amnesia the log is in memory.
  const fs = dir === undefined ? new MemoryDisk(AMNESIA_LOG_BYTES_MAX) : init.fs;
  const log = await NameLog.open({ dir: join(dir ?? '/', LOG_DIR), fs, key, store, warn, signal });
  try {
    // An outdated database may lack announced objects, too: a new epoch requests the announcement of all.
    if (await log.catchUp(signal)) await store.newEpoch();
    return new NameService(init, log, TrustList.of(await store.trust()), new Set(await store.pins()));
  } catch (error) {
    await log[Symbol.asyncDispose]();
    throw error;
  }
}

export class NameService implements Names, AsyncDisposable {
  readonly #init: NamesInit;
  readonly #log: NameLog;
  readonly #publisher: Publisher;
  readonly #adoption: Adoption;
  readonly #rates: SubjectRates;
  /** `small_policy` of the specification: replaced as a whole. */
  readonly #trust: Snapshot<TrustList>;
  readonly #pins: Snapshot<ReadonlySet<string>>;

  constructor(init: NamesInit, log: NameLog, trust: TrustList, pins: ReadonlySet<string>) {
    const { jobs, store } = init;
    this.#init = init;
    this.#log = log;
    this.#trust = new Snapshot('trust', trust);
    this.#pins = new Snapshot('pins', pins);
    this.#rates = new SubjectRates(() => init.quotas().publish_per_min);
    this.#publisher = new Publisher({
      jobs,
      log,
      store,
      onAppended: (changes) => this.#onAppended(changes),
      invalidate: (changes) => this.#invalidate(changes),
      invalidateAll: init.invalidateAll,
    });
    this.#adoption = new Adoption({
      store,
      isTrusted: (key) => this.isTrusted(key),
      recordFork: (state, signal) => this.#recordFork(state, signal),
      onFork: (state) => init.onFork?.(state),
    });
  }

  get problem(): string | undefined {
    return this.#log.problem;
  }

  /** For the routes that serve the log; undefined if it could not be opened. */
  get log(): TransparencyLog | undefined {
    return this.#log.log;
  }

  get trusted(): readonly TrustedKey[] {
    return this.#trust.load().list();
  }

  get pins(): ReadonlySet<string> {
    return this.#pins.load();
  }

  keyFor(label: string): string | undefined {
    return this.#trust.load().keyFor(label);
  }

  isTrusted(key: string): boolean {
    return this.#trust.load().isTrusted(key);
  }

  async publish(record: Uint8Array, signature: Uint8Array, caller: Caller, signal: AbortSignal): Promise<Published> {
    this.#rates.take(caller.subject);
    const result = verifySigned(record, signature);
    if (!result.ok) throw new RonError('validation', result.problem);
    const { signed } = result;
    const { key, label } = signed.stored;
    await this.#learn(key, label, signal);
    const { store, quotas } = this.#init;
    let isNew = false;
    const request = publishRecord(signed, store, quotas().names_per_key, (checked) => (isNew = checked));
    await this.#publisher.submit(request, caller, signal);
    // An earlier call may have failed and taken effect later, when lookups had cached the state before.
    if (!isNew) this.#invalidate([{ kind: 'name', record: signed.stored }]);
    // Read again: a contradicting record may have arrived meanwhile.
    const name = await store.name(key, label).catch(() => undefined);
    return { name: name ?? { ...signed.stored, rival: undefined, isOwn: true, dropped: 0 }, isNew };
  }

  async setTrust({ prefix, key }: TrustedKey, caller: Caller, signal: AbortSignal): Promise<void> {
    await this.#change(
      changeTrust(prefix, key, () => this.#trust.load()),
      caller,
      signal,
    );
  }

  async removeTrust(prefix: string, caller: Caller, signal: AbortSignal): Promise<void> {
    await this.#change(
      changeTrust(prefix, undefined, () => this.#trust.load()),
      caller,
      signal,
    );
  }

  async setPin(target: string, isPinned: boolean, caller: Caller, signal: AbortSignal): Promise<void> {
    await this.#change(
      changePin(target, isPinned, () => this.#pins.load()),
      caller,
      signal,
    );
  }

  async recordAdmin(action: string, caller: Caller, signal: AbortSignal): Promise<void> {
    await this.#change(recordAction(action), caller, signal);
  }

  adopt(
    key: string,
    label: string,
    values: readonly Uint8Array[],
    signal: AbortSignal,
  ): Promise<StoredName | undefined> {
    return this.#adoption.adopt(key, label, values, signal);
  }

  accepts(key: string, label: string, value: Uint8Array): Promise<StoredRecord | undefined> {
    return this.#adoption.accepts(key, label, value, this.#init.signal);
  }

  /** Applies entries that the database lacks: it was replaced by an empty one. */
  async restore(signal: AbortSignal): Promise<void> {
    await this.#publisher.submit({ load: async () => undefined, check: () => undefined }, NODE, signal);
  }

  /** The task `publisher`. */
  run(stopping: AbortSignal): Promise<void> {
    return this.#publisher.run(stopping);
  }

  /** Completes accepted changes, signs the last checkpoint and closes the log. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#publisher.close();
    await this.#log[Symbol.asyncDispose]();
  }

  async #change(request: ChangeRequest, caller: Caller, signal: AbortSignal): Promise<void> {
    this.#rates.take(caller.subject);
    await this.#publisher.submit(request, caller, signal);
  }

  /** Both records are offered to the network, so that the publisher of the other one learns of the fork. */
  async #recordFork(state: Forked, signal: AbortSignal): Promise<void> {
    const { store, onPublished } = this.#init;
    await this.#publisher.submit(recordFork(state, store), NODE, signal);
    onPublished?.(state.record);
  }

  /**
   * Adopts the records of other nodes before a publish. Without an answer the own knowledge decides: a fork that a
   * publish begins is detected later.
   */
  async #learn(key: string, label: string, signal: AbortSignal): Promise<void> {
    const { readQuorum } = this.#init;
    if (readQuorum === undefined) return;
    using deadline = Deadline.after('name_quorum', QUORUM_MS, { signal });
    try {
      const values = await deadline.run((within) => readQuorum(key, label, within));
      if (values.length > 0) await this.adopt(key, label, values, signal);
    } catch (error) {
      if (signal.aborted || !isRonError(error)) throw error;
    }
  }

  #onAppended(changes: readonly LogChange[]): void {
    for (const change of changes) {
      // Here and not by the caller, who may have left.
      if (change.kind === 'name') this.#init.onPublished?.(change.record);
      if (change.kind === 'trust') this.#trust.swap(this.#trust.load().with(change.prefix, change.key));
      if (change.kind !== 'pin') continue;
      const pins = new Set(this.#pins.load());
      if (change.isPinned) pins.add(change.target);
      else pins.delete(change.target);
      this.#pins.swap(pins);
    }
  }

  #invalidate(changes: readonly LogChange[]): void {
    const { invalidate, invalidateAll } = this.#init;
    if (changes.some(({ kind }) => kind === 'trust')) return invalidateAll();
    const targets = new Set(changes.flatMap(targetsOf));
    if (targets.size > 0) invalidate([...targets]);
  }
}

/** The keys of the cache that a change affects. */
function targetsOf(change: LogChange): string[] {
  if (change.kind === 'pin') return [change.target];
  if (change.kind !== 'name' && change.kind !== 'fork') return [];
  const { key, label } = change.record;
  return [formatTarget({ kind: 'name', label, key }), formatTarget({ kind: 'name', label, key: undefined })];
}
