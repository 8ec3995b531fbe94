/**
 * All state of kms, opened and checked for consistency.
 *
 *     <data_dir>/kek        the key that encrypts the rest, mode 0600, unless it comes from elsewhere
 *     <data_dir>/anchor     encrypted: records about all other parts, see vault/anchor.ts
 *     <data_dir>/custody    encrypted: private keys (backend `file`), and those that sign the audit log
 *     <data_dir>/index      encrypted: names, versions and public keys
 *     <data_dir>/audit/     the audit log, public, with its verification keys in `vkeys`
 *     <data_dir>/ops/       operations by id; `head`, encrypted: the last checkpoint
 *
 * Contract: every start detects a part that was rolled back or is missing. Then the vault still opens if it can, `problem`
 * states why nothing may be signed, and nothing is written, so that the evidence is preserved. The state after a crash is
 * not a problem. One process at a time may open it.
 */
import { join } from 'node:path';
import type { Backend } from '@ron/custody';
import { NEVER, isRonError, RonError, sched } from '@ron/kernel';
import { readWhole, realFileSystem, writeWhole, type FileSystem } from '@ron/log';
import {
  inspectLog,
  KeyType,
  noteSigner,
  TransparencyLog,
  type CheckpointRecorder,
  type InspectedLog,
  type KnownCheckpoint,
  type NoteSigner,
  type TransparencyLogInit,
} from '@ron/tlog';
import { MemoryDisk } from '../audit/memory-disk.ts';
import { openBackend } from '../backend/open-backend.ts';
import type { KmsConfig } from '../config.ts';
import { KeyRegistry } from '../keys/key-registry.ts';
import type { OpLedger } from '../ops/op-ledger.ts';
import { openUnlock } from '../unlock.ts';
import { checkpointOf, headOf, type Anchor, type LogHead, type Store } from './anchor.ts';
import { FreezableDisk } from './freezable-disk.ts';
import { notedBy, openKeys, openOps, partsIn, versionOf, type Keys, type Opening } from './parts.ts';
import { problemsOf, type Heads } from './soundness.ts';

export interface VaultInit {
  readonly config: KmsConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Replaces the configured backend. The keys of the log stay in the file backend. */
  readonly backend?: Backend | undefined;
  readonly fs?: FileSystem | undefined;
  readonly signal: AbortSignal;
  readonly warn: (what: string) => void;
}

export interface Vault extends AsyncDisposable {
  readonly dir: string | undefined;
  readonly backend: Backend;
  readonly registry: KeyRegistry;
  readonly ledger: OpLedger;
  /** Undefined if the vault is not sound; `problem` states why. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Why nothing may be signed: some part was rolled back. */
  readonly problem: string | undefined;
  /** Records checkpoints and the state that belongs to them. */
  readonly recorder: CheckpointRecorder;
  /** Since when operations may lack an entry, because the last process did not shut down cleanly. */
  readonly interrupted_ms: number | undefined;
  /** Call it before the first operation: a crash from now on is detectable. Idempotent. */
  begin(signal: AbortSignal): Promise<void>;
  /** Records a clean shutdown: every operation is in the log, and none will follow. */
  end(signal: AbortSignal): Promise<void>;
  /** Stops all writes, so that the state is preserved for an investigation. */
  freeze(problem: string): void;
  close(): Promise<void>;
}

const VKEYS_BYTES_MAX = 64 * 1024;
const NO_LOG: InspectedLog = { size: 0, checkpoint: undefined };

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
  const opening = await prepare(init, opened);
  const { disk, there } = opening;
  const keys = await openKeys(opening, config.audit.origin);
  const { anchor, custody, index } = keys;
  const signers = anchor === undefined ? [] : await signersOf(custody, anchor, opening.problems, signal);
  const ops = await openOps(opening, anchor, config.kms.ops_max);
  const heads = { index: index.value.log_head, custody: notedBy(custody), 'ops/head': ops.head?.value };
  const logInit: TransparencyLogInit = {
    dir: opening.at('audit'),
    origin: anchor?.origin ?? '',
    signers,
    known: knownOf(anchor, heads),
    fs: disk,
    signal,
  };
  if (anchor !== undefined && there.size > 0) {
    const found = there.has('audit') ? await inspected(logInit, opening.problems) : NO_LOG;
    opening.problems.push(...problemsOf({ anchor, heads, log: found, ops_problem: ops.problem }));
  }
  const problem = opening.problems.length === 0 ? undefined : opening.problems.join('; ');
  const freeze = (why: string): void => disk.freeze(() => notSound(why));
  if (problem === undefined) await disk.thaw();
  else freeze(problem);
  const log = problem === undefined ? opening.adopt(await TransparencyLog.open(logInit)) : undefined;
  const vkeys = signers.map((signer) => signer.vkey);
  if (log !== undefined) await writeVkeys(disk, logInit.dir, vkeys, init.warn);
  const opsHead = ops.head ?? (problem === undefined ? await ops.openHead() : undefined);
  // If the real ledger cannot be opened, requests are refused before they reach this one.
  const ledger = ops.ledger ?? (await ops.openLedger(problem === undefined ? disk : new MemoryDisk(0)));

  const backend = init.backend ?? (await openBackend({ config, env: init.env, file: custody, signal }));
  if (backend !== custody) opened.push(backend);
  const registry = opening.adopt(new KeyRegistry({ store: keys.store, keys_max: config.kms.keys_max }));
  const close = async (): Promise<void> => {
    for (const each of opened.splice(0).toReversed()) await each[Symbol.asyncDispose]();
  };
  return {
    dir: dirOf(config),
    backend,
    registry,
    ledger,
    log,
    origin: anchor?.origin ?? 'unknown',
    vkeys,
    problem,
    interrupted_ms: log !== undefined && log.size > 0 && anchor!.is_closed !== true ? anchor!.time_ms : undefined,
    ...recorderOf({ keys, opsHead, ledger, log }),
    freeze,
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Freezes an existing vault: nothing is written before all parts are known to be consistent. */
async function prepare({ config, env, fs, warn, signal }: VaultInit, opened: AsyncDisposable[]): Promise<Opening> {
  const dir = dirOf(config);
  const disk = new FreezableDisk(dir === undefined ? new MemoryDisk(config.amnesia.bytes_max) : (fs ?? realFileSystem));
  const there = dir === undefined ? new Set<string>() : await partsIn(disk, dir);
  if (there.size > 0) disk.freeze(missingPart);
  return {
    disk,
    unlock: dir === undefined ? undefined : await openUnlock({ config, dir, env, fs: disk, warn }),
    there,
    signal,
    at: (name) => join(dir ?? '/', name),
    problems: [],
    adopt: (part) => {
      opened.push({ [Symbol.asyncDispose]: () => part.close() });
      return part;
    },
  };
}

/** Undefined in amnesia mode. */
const dirOf = ({ amnesia, data_dir }: KmsConfig): string | undefined => (amnesia.enabled ? undefined : data_dir!);

interface RecorderInit {
  readonly keys: Keys;
  readonly opsHead: Store<LogHead | undefined> | undefined;
  readonly ledger: OpLedger;
  readonly log: TransparencyLog | undefined;
}

/** Records checkpoints and shutdowns in the anchor. Not used while the vault is not sound. */
function recorderOf({ keys, opsHead, ledger, log }: RecorderInit): Pick<Vault, 'recorder' | 'begin' | 'end'> {
  const { anchors, index, custody } = keys;
  const anchored = (): Anchor => anchors!.value!;
  return {
    recorder: {
      async beforePublish(checkpoint, until) {
        const versions = { index_version: index.version, custody_version: versionOf(custody) };
        // The size that is known to be in every place, even if a crash comes now.
        const published = Math.min(log?.checkpoint?.size ?? 0, opsHead!.value?.size ?? 0);
        const { is_closed: _, ...rest } = anchored();
        const state = { checkpoint: headOf(checkpoint), published, ...versions, ops: ledger.extent };
        await anchors!.replace({ ...rest, ...state, time_ms: sched.wall_ms() }, until);
      },
      async duringPublish(checkpoint) {
        // Not cancellable: the checkpoint is already being published.
        await opsHead!.replace(headOf(checkpoint), NEVER);
        await ledger.prune(anchored().ops!);
      },
    },
    async begin(until) {
      const { is_closed, ...rest } = anchored();
      if (is_closed !== undefined) await anchors!.replace(rest, until);
    },
    async end(until) {
      await anchors!.replace({ ...anchored(), time_ms: sched.wall_ms(), is_closed: true }, until);
    },
  };
}

async function inspected(init: TransparencyLogInit, problems: string[]): Promise<InspectedLog | undefined> {
  try {
    return await inspectLog(init);
  } catch (error) {
    if (!isRonError(error, 'audit_integrity')) throw error;
    problems.push(error.message);
    return undefined;
  }
}

function knownOf(anchor: Anchor | undefined, heads: Heads): KnownCheckpoint[] {
  const remembered = Object.entries({ anchor: anchor?.checkpoint, ...heads });
  const ours = remembered.filter(([, head]) => head?.origin === anchor?.origin);
  return ours.flatMap(([by, head]) => (head === undefined ? [] : [{ ...checkpointOf(head), by }]));
}

async function signersOf(
  custody: Backend,
  { origin, log_keys }: Anchor,
  problems: string[],
  signal: AbortSignal,
): Promise<NoteSigner[]> {
  const make = async (type: NoteSigner['type'], key: string, alg: 'ed25519' | 'ml-dsa-44'): Promise<NoteSigner> => {
    const handle = await custody.open(key, alg, signal);
    const spki = Buffer.from(handle.public[0]!.pubkey_b64, 'base64');
    const sign = async (message: Uint8Array, at: AbortSignal): Promise<Uint8Array> =>
      (await custody.sign(key, message, at))[0]!.signature;
    return noteSigner({ name: origin, type, spki, sign });
  };
  try {
    return [
      await make(KeyType.ed25519, log_keys.ed25519, 'ed25519'),
      await make(KeyType.mlDsa44, log_keys.ml_dsa_44, 'ml-dsa-44'),
    ];
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    problems.push('custody was rolled back: it lacks the keys that sign the audit log');
    return [];
  }
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

function missingPart(path: string): RonError {
  return new RonError('integrity', `${path.replace(/\.tmp$/, '')} is missing, but other parts exist: restore it`);
}

export function notSound(problem: string): RonError {
  return new RonError(
    'audit_integrity',
    `kms refuses to sign: ${problem}; restore the newest data, or run \`ron audit accept\``,
  );
}
