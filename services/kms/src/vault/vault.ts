/**
 * All state of kms, opened and checked for consistency.
 *
 *     <data_dir>/kek        the key that encrypts the store, mode 0600, unless it comes from elsewhere
 *     <data_dir>/vault/     the store: keys, versions, operations, the anchor (vault/tables.ts); records are encrypted
 *     <data_dir>/audit/     the audit log, public, with its verification keys in `vkeys`
 *
 * Contract: every start detects that the store or the log was rolled back as a whole, or that one of them is missing. Then
 * the vault opens if the store does, `problem` states why nothing may be signed, and nothing is written to the log, so that
 * the evidence is preserved, until the operator accepts it (vault/accept.ts). The state after a crash is not a problem. No
 * start detects that both were rolled back together, which only a witness does, or that one record of the store was
 * replaced by an older copy of itself, which nothing does. One process at a time may open it. Files of the earlier format
 * are converted first (vault/upgrade/).
 */
import { join } from 'node:path';
import { FileBackend, MemoryBackend, type Backend, type Unlock } from '@ron/custody';
import { documentOf, LmdbStore, MemoryStore, type Document, type RecordStore } from '@ron/custody/store';
import { isRonError, RonError, sched } from '@ron/kernel';
import { MemoryDisk, readWhole, realFileSystem, writeWhole, type FileSystem } from '@ron/log';
import {
  inspectLog,
  KeyType,
  noteSigner,
  TransparencyLog,
  type CheckpointRecorder,
  type InspectedLog,
  type NoteSigner,
  type TransparencyLogInit,
} from '@ron/tlog';
import { openBackend } from '../backend/open-backend.ts';
import type { KmsConfig } from '../config.ts';
import { KeyRegistry } from '../keys/key-registry.ts';
import { OpLedger } from '../ops/op-ledger.ts';
import { openUnlock } from '../unlock.ts';
import { accepterOf, beginAccepted, type Accepter, type LogPlace } from './accept.ts';
import { ANCHOR_KEY, ANCHORS, checkpointOf, headOf, type Anchor } from './anchor.ts';
import { lastCosignedOf, type LastCosigned } from './last-cosigned.ts';
import { problemsOf } from './soundness.ts';
import { TABLES } from './tables.ts';
import { upgradeIfOld } from './upgrade/upgrade.ts';

/** The store, and the sealing of private keys in it. */
export type VaultStore = RecordStore & Pick<LmdbStore, 'seal' | 'unseal' | 'kekFor'>;

export interface VaultInit {
  readonly config: KmsConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Replaces the configured backend. The keys of the log stay in the file backend. */
  readonly backend?: Backend | undefined;
  readonly fs?: FileSystem | undefined;
  /** Replaces the store on disk. */
  readonly store?: VaultStore | undefined;
  readonly signal: AbortSignal;
  readonly warn: (what: string) => void;
}

export interface Vault extends Accepter, AsyncDisposable {
  readonly dir: string | undefined;
  /** Seals files beside the store; stays the same when the key of the store changes. Undefined if there is none on disk. */
  readonly unlock: Unlock | undefined;
  readonly store: RecordStore;
  readonly backend: Backend;
  readonly registry: KeyRegistry;
  readonly ledger: OpLedger;
  /** Undefined if the vault is not sound; `problem` states why. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Why nothing may be signed: the store or the log was rolled back. */
  readonly problem: string | undefined;
  /** Records checkpoints and the state that belongs to them. */
  readonly recorder: CheckpointRecorder;
  /** Since when operations may lack an entry: the last process did not shut down cleanly, or its log was damaged. */
  readonly interrupted_ms: number | undefined;
  readonly last_cosigned: LastCosigned;
  /** Call it before the first operation: the next start records that operations may lack an entry. Idempotent. */
  begin(signal: AbortSignal): Promise<void>;
  /** Records a clean shutdown: every operation is in the log, and none will follow. */
  end(signal: AbortSignal): Promise<void>;
  /** Declares that the vault is not sound. The first problem stays. */
  freeze(problem: string): void;
  close(): Promise<void>;
}

const VKEYS_BYTES_MAX = 64 * 1024;
const STORE_DIR = 'vault';

export async function openVault(init: VaultInit): Promise<Vault> {
  const opened: AsyncDisposable[] = [];
  try {
    return await openAll(init, opened);
  } catch (error) {
    for (const each of opened.toReversed()) await each[Symbol.asyncDispose]();
    throw error;
  }
}

async function openAll(init: VaultInit, opened: AsyncDisposable[]): Promise<Vault> {
  const { config, signal } = init;
  const dir = dirOf(config);
  const fs = dir === undefined ? new MemoryDisk(config.amnesia.bytes_max) : (init.fs ?? realFileSystem);
  const place: LogPlace = { fs, dir: dir ?? '/' };
  const logDir = join(place.dir, 'audit');
  const hadLog = await hasEntries(fs, logDir);
  const { store, custody, unlock } = await openStore(init, dir, fs, hadLog);
  opened.push(store, custody);
  const anchors = documentOf(store, ANCHORS, ANCHOR_KEY);
  if (anchors.value === undefined) {
    if (hadLog) throw missing(join(place.dir, STORE_DIR));
    await anchors.replace(await newAnchor(custody, config.audit.origin, signal), signal);
  }
  const signersFor = (of: Anchor, within: AbortSignal): Promise<NoteSigner[]> => signersOf(custody, of, within);
  const isBegun = await beginAccepted(place, anchors, signersFor, signal);
  const hasLog = isBegun || hadLog;
  const anchor = anchors.value!;
  const signers = await signersOf(custody, anchor, signal);
  const logInit: TransparencyLogInit = {
    dir: logDir,
    origin: anchor.origin,
    signers,
    known: anchor.checkpoint === undefined ? [] : [{ ...checkpointOf(anchor.checkpoint), by: STORE_DIR }],
    fs,
    signal,
  };
  const problems = await problemsIn(anchor, logInit, hasLog);
  let problem = problems.length === 0 ? undefined : problems.join('; ');
  const log = problem === undefined ? await TransparencyLog.open(logInit) : undefined;
  const vkeys = signers.map((signer) => signer.vkey);
  if (log !== undefined) {
    opened.push(log);
    await writeVkeys(fs, logInit.dir, vkeys, init.warn);
  }
  const backend = init.backend ?? (await openBackend({ config, env: init.env, file: custody, signal }));
  if (backend !== custody) opened.push(backend);
  const close = async (): Promise<void> => {
    for (const each of opened.splice(0).toReversed()) await each[Symbol.asyncDispose]();
  };
  return {
    dir,
    unlock,
    store,
    backend,
    registry: new KeyRegistry({ store, keys_max: config.kms.keys_max }),
    ledger: new OpLedger({ store, entries_max: config.kms.ops_max }),
    log,
    origin: anchor.origin,
    vkeys,
    get problem() {
      return problem;
    },
    interrupted_ms: log !== undefined && log.size > 0 && !isComplete(anchor) ? anchor.time_ms : undefined,
    last_cosigned: lastCosignedOf(store, anchor),
    ...recorderOf(anchors, log, () => problem !== undefined),
    freeze: (why) => (problem ??= why),
    ...accepterOf(place, anchors, signersFor, log),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function openStore(
  init: VaultInit,
  dir: string | undefined,
  fs: FileSystem,
  hasLog: boolean,
): Promise<{ store: RecordStore; custody: Backend; unlock?: Unlock }> {
  const { config, env, warn, signal } = init;
  if (init.store !== undefined) return withCustody(init.store);
  if (dir === undefined) {
    return { store: new MemoryStore(config.amnesia.bytes_max), custody: new MemoryBackend() };
  }
  const unlock = await openUnlock({ config, dir, env, fs, warn });
  const open = (at: string): Promise<LmdbStore> => openVaultStore(at, unlock, signal);
  await upgradeIfOld({ dir, fs, unlock, open, warn, signal });
  // Without this check a missing store would be created again, and the log would look foreign.
  if (hasLog && !(await fs.list(dir)).includes(STORE_DIR)) throw missing(join(dir, STORE_DIR));
  return withCustody(await open(join(dir, STORE_DIR)));
}

function withCustody(store: VaultStore): { store: RecordStore; custody: Backend; unlock: Unlock } {
  return { store, custody: new FileBackend({ store }), unlock: { kek: store.kekFor('files') } };
}

/** Opens the store in a directory, for kms and for the commands that change its key. */
export function openVaultStore(dir: string, unlock: Unlock, signal: AbortSignal): Promise<LmdbStore> {
  return LmdbStore.open({ dir, tables: TABLES, unlock, signal });
}

/** Undefined in amnesia mode. */
const dirOf = ({ amnesia, data_dir }: KmsConfig): string | undefined => (amnesia.enabled ? undefined : data_dir!);

/** Whether the directory holds a log: entries or a checkpoint. */
async function hasEntries(fs: FileSystem, dir: string): Promise<boolean> {
  try {
    return (await fs.list(dir)).some((name) => name === 'entries' || name === 'checkpoint');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

async function newAnchor(custody: Backend, origin: string | undefined, signal: AbortSignal): Promise<Anchor> {
  const ed25519 = await custody.create('ed25519', 'audit log', signal);
  const ml_dsa_44 = await custody.create('ml-dsa-44', 'audit log', signal);
  return {
    origin: origin ?? `ron.local/kms/${Buffer.from(sched.randomBytes(6)).toString('hex')}`,
    log_keys: { ed25519: ed25519.key, ml_dsa_44: ml_dsa_44.key },
    published: 0,
    time_ms: sched.wall_ms(),
  };
}

/** Whether every operation before this start is in the log. */
const isComplete = ({ is_closed, ran_unsound }: Anchor): boolean => is_closed === true && ran_unsound === undefined;

/** Records checkpoints, starts and shutdowns in the store. While the vault is not sound, only `begin` is used. */
function recorderOf(
  anchors: Document<Anchor>,
  log: TransparencyLog | undefined,
  isUnsound: () => boolean,
): Pick<Vault, 'recorder' | 'begin' | 'end'> {
  /** The size that is known to be published, even if a crash comes now. */
  const published = (): number => log?.checkpoint?.size ?? 0;
  return {
    recorder: {
      async beforePublish(checkpoint, until) {
        const { is_closed: _, ...rest } = anchors.value!;
        const state = { checkpoint: headOf(checkpoint), published: published(), time_ms: sched.wall_ms() };
        await anchors.replace({ ...rest, ...state }, until);
      },
    },
    async begin(until) {
      const { is_closed, ran_unsound, ...rest } = anchors.value!;
      if (isUnsound()) {
        // `is_closed` stays: it reveals entries that were added after the shutdown.
        if (ran_unsound === undefined) await anchors.replace({ ...anchors.value!, ran_unsound: true }, until);
      } else if (is_closed !== undefined || ran_unsound !== undefined) await anchors.replace(rest, until);
    },
    async end(until) {
      const state = { published: published(), time_ms: sched.wall_ms(), is_closed: true } as const;
      await anchors.replace({ ...anchors.value!, ...state }, until);
    },
  };
}

async function problemsIn(anchor: Anchor, init: TransparencyLogInit, hasLog: boolean): Promise<string[]> {
  const { size = 0 } = anchor.checkpoint ?? {};
  if (!hasLog) return size === 0 ? [] : [`audit is missing: vault records ${size} signed entries; restore it`];
  let found: InspectedLog;
  try {
    found = await inspectLog(init);
  } catch (error) {
    if (!isRonError(error, 'audit_integrity')) throw error;
    return [error.message];
  }
  return problemsOf(anchor, found);
}

async function signersOf(custody: Backend, { origin, log_keys }: Anchor, signal: AbortSignal): Promise<NoteSigner[]> {
  const make = async (type: NoteSigner['type'], key: string, alg: 'ed25519' | 'ml-dsa-44'): Promise<NoteSigner> => {
    const handle = await custody.open(key, alg, signal);
    const spki = Buffer.from(handle.public[0]!.pubkey_b64, 'base64');
    const sign = async (message: Uint8Array, at: AbortSignal): Promise<Uint8Array> =>
      (await custody.sign(key, message, at))[0]!.signature;
    return noteSigner({ name: origin, type, spki, sign });
  };
  return [
    await make(KeyType.ed25519, log_keys.ed25519, 'ed25519'),
    await make(KeyType.mlDsa44, log_keys.ml_dsa_44, 'ml-dsa-44'),
  ];
}

/** Writes the public keys for auditors. An auditor who does not trust the directory keeps a copy elsewhere. */
async function writeVkeys(
  fs: FileSystem,
  dir: string,
  vkeys: readonly string[],
  warn: (what: string) => void,
): Promise<void> {
  const path = join(dir, 'vkeys');
  const bytes = Buffer.from(vkeys.map((vkey) => `${vkey}\n`).join(''));
  const found = await readWhole(fs, path, VKEYS_BYTES_MAX);
  if (found?.equals(bytes) === true) return;
  if (found !== undefined) warn(`${path} did not contain the keys of the log and was rewritten`);
  await writeWhole(fs, path, bytes);
}

function missing(path: string): RonError {
  return new RonError('integrity', `${path} is missing or empty, but an audit log exists: restore it`);
}

export function notSound(problem: string): RonError {
  return new RonError(
    'audit_integrity',
    `kms refuses to sign: ${problem}; restore the newest data, or run \`ron audit accept\``,
  );
}
