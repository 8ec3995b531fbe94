/**
 * Everything that kms keeps, opened and checked against each other.
 *
 *     <data_dir>/kek        what seals the rest, 0600, unless it comes from elsewhere
 *     <data_dir>/anchor     sealed: the last checkpoint, and the versions of the two files below
 *     <data_dir>/custody    sealed: private keys (backend `file`), and those that sign the audit log
 *     <data_dir>/index      sealed: names, versions and public keys
 *     <data_dir>/audit/     the audit log, public; `vkeys` beside it: the keys to check it with
 *     <data_dir>/ops/       operations by their ids
 *
 * Promise: a file or a log that is older than what the anchor remembers is found out; then the vault still opens, and
 * `problem` says why nothing may be signed. One process has it.
 */
import { join } from 'node:path';
import { FileBackend, MemoryBackend, SealedFile, type Backend, type Unlock } from '@ron/custody';
import { isRonError, RonError, sched } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import {
  KeyType,
  noteSigner,
  TransparencyLog,
  type Checkpoint,
  type NoteSigner,
  type SignedCheckpoint,
} from '@ron/tlog';
import { MemoryDisk } from './audit/memory-disk.ts';
import { openBackend } from './backend/open-backend.ts';
import type { KmsConfig } from './config.ts';
import { KeyBook, type KeyStore } from './keys/key-book.ts';
import { EMPTY_DOCUMENT, type KeyDocument } from './keys/key-record.ts';
import { OpLedger } from './ops/op-ledger.ts';
import { openUnlock } from './unlock.ts';

/** What is remembered of everything else. */
interface Anchor {
  readonly origin: string;
  /** The log's own keys, in the backend that holds them. */
  readonly log_keys: { readonly ed25519: string; readonly ml_dsa_44: string };
  readonly checkpoint?: { readonly size: number; readonly root_b64: string };
  readonly index_version: number;
  readonly custody_version: number;
}

interface AnchorStore {
  readonly value: Anchor | undefined;
  replace(next: Anchor | undefined, signal: AbortSignal): Promise<unknown>;
  close(): Promise<void>;
}

export interface VaultInit {
  readonly config: KmsConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Instead of the configured one. Keys of the log stay where they are. */
  readonly backend?: Backend | undefined;
  readonly fs?: FileSystem | undefined;
  readonly signal: AbortSignal;
  readonly warn: (what: string) => void;
}

export interface Vault extends AsyncDisposable {
  readonly dir: string | undefined;
  readonly backend: Backend;
  readonly book: KeyBook;
  readonly ledger: OpLedger;
  /** Undefined when it could not be opened; `problem` says why. */
  readonly log: TransparencyLog | undefined;
  readonly origin: string;
  readonly vkeys: readonly string[];
  /** Why nothing may be signed: something is older than it was. */
  readonly problem: string | undefined;
  /** Remembers a checkpoint, and the versions that belong to it. */
  anchor(checkpoint: SignedCheckpoint, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

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
  const amnesia = config.amnesia.enabled;
  const dir = amnesia ? undefined : config.data_dir!;
  const fs = amnesia ? new MemoryDisk(config.amnesia.bytes_max) : (init.fs ?? realFileSystem);
  const unlock = dir === undefined ? undefined : await openUnlock({ config, dir, env: init.env, fs, warn: init.warn });
  const problems: string[] = [];
  const at = (name: string): string => join(dir ?? '/', name);

  const anchors = await openAnchor(at('anchor'), unlock, fs, signal);
  opened.push({ [Symbol.asyncDispose]: () => anchors.close() });
  const before = anchors.value;
  const custody = await openCustody(at('custody'), unlock, before?.custody_version ?? 0, fs, problems, signal);
  opened.push(custody);
  const store = await openIndex(at('index'), unlock, before?.index_version ?? 0, fs, problems, signal);
  opened.push({ [Symbol.asyncDispose]: () => store.close() });
  const backend = init.backend ?? (await openBackend({ config, env: init.env, file: custody, signal }));
  if (backend !== custody) opened.push(backend);
  const book = new KeyBook({ store, keys_max: config.kms.keys_max });
  opened.push(book);

  const anchor = before ?? (await newAnchor(custody, config.audit.origin, signal));
  const signers = await signersOf(custody, anchor, signal);
  const known = knownOf(anchor);
  const log = await openLog({ dir: at('audit'), origin: anchor.origin, signers, known, fs, signal }, problems);
  if (log !== undefined) opened.push(log);
  const vkeys = signers.map((signer) => signer.vkey);
  await writeVkeys(fs, at('audit'), vkeys);
  if (before === undefined) await anchors.replace(anchor, signal);
  const ledger = await OpLedger.open({ dir: at('ops'), fs, entries_max: config.kms.ops_max, signal });
  opened.push(ledger);

  const close = async (): Promise<void> => {
    for (const each of opened.splice(0).toReversed()) await each[Symbol.asyncDispose]();
  };
  return {
    dir,
    backend,
    book,
    ledger,
    log,
    origin: anchor.origin,
    vkeys,
    problem: problems.length === 0 ? undefined : problems.join('; '),
    async anchor({ size, root }, at_signal) {
      const checkpoint = { size, root_b64: Buffer.from(root).toString('base64') };
      const versions = { index_version: store.version, custody_version: versionOf(custody) };
      await anchors.replace({ ...anchor, checkpoint, ...versions }, at_signal);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function openAnchor(
  path: string,
  unlock: Unlock | undefined,
  fs: FileSystem,
  signal: AbortSignal,
): Promise<AnchorStore> {
  if (unlock === undefined) return memoryStore<Anchor | undefined>(undefined);
  return await SealedFile.open<Anchor | undefined>({
    path,
    unlock,
    purpose: 'kms-anchor',
    // JSON knows no undefined.
    initial: undefined,
    codec: {
      encode: (value) => Buffer.from(JSON.stringify(value ?? null)),
      decode: (bytes) => (JSON.parse(Buffer.from(bytes).toString()) as Anchor | null) ?? undefined,
    },
    fs,
    signal,
  });
}

async function openCustody(
  path: string,
  unlock: Unlock | undefined,
  version_min: number,
  fs: FileSystem,
  problems: string[],
  signal: AbortSignal,
): Promise<Backend> {
  if (unlock === undefined) return new MemoryBackend();
  const open = (least: number): Promise<Backend> => FileBackend.open({ path, unlock, version_min: least, fs, signal });
  return await newest(open, version_min, problems);
}

async function openIndex(
  path: string,
  unlock: Unlock | undefined,
  version_min: number,
  fs: FileSystem,
  problems: string[],
  signal: AbortSignal,
): Promise<KeyStore & { close(): Promise<void> }> {
  if (unlock === undefined) return memoryStore<KeyDocument>(EMPTY_DOCUMENT);
  const common = { path, unlock, purpose: 'kms-index', initial: EMPTY_DOCUMENT, fs, signal };
  const open = (least: number): Promise<SealedFile<KeyDocument>> => SealedFile.open({ ...common, version_min: least });
  return await newest(open, version_min, problems);
}

/** Opens a file that should have at least this version; an older one opens too, but is a problem. */
async function newest<T>(
  open: (version_min: number) => Promise<T>,
  version_min: number,
  problems: string[],
): Promise<T> {
  try {
    return await open(version_min);
  } catch (error) {
    if (!isRonError(error, 'integrity') || error.op !== 'rollback') throw error;
    problems.push(error.message);
    return await open(0);
  }
}

async function openLog(
  init: Parameters<typeof TransparencyLog.open>[0],
  problems: string[],
): Promise<TransparencyLog | undefined> {
  try {
    return await TransparencyLog.open(init);
  } catch (error) {
    if (!isRonError(error, 'audit_integrity')) throw error;
    problems.push(error.message);
    return undefined;
  }
}

async function newAnchor(custody: Backend, origin: string | undefined, signal: AbortSignal): Promise<Anchor> {
  const ed25519 = await custody.create('ed25519', 'audit log', signal);
  const ml_dsa_44 = await custody.create('ml-dsa-44', 'audit log', signal);
  return {
    origin: origin ?? `ron.local/kms/${Buffer.from(sched.randomBytes(6)).toString('hex')}`,
    log_keys: { ed25519: ed25519.key, ml_dsa_44: ml_dsa_44.key },
    index_version: 0,
    custody_version: 0,
  };
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

function knownOf({ origin, checkpoint }: Anchor): Checkpoint | undefined {
  if (checkpoint === undefined) return undefined;
  return { origin, size: checkpoint.size, root: Buffer.from(checkpoint.root_b64, 'base64') };
}

/** For whoever checks the directory without us. They are public; whoever wants to be sure keeps a copy elsewhere. */
async function writeVkeys(fs: FileSystem, dir: string, vkeys: readonly string[]): Promise<void> {
  const path = join(dir, 'vkeys');
  const bytes = Buffer.from(vkeys.map((vkey) => `${vkey}\n`).join(''));
  const names = await fs.list(dir);
  const file = names.includes('vkeys') ? await fs.open(path, 'write') : await fs.create(path);
  try {
    await file.truncate(bytes.length);
    await file.write([bytes], 0);
    await file.sync();
  } finally {
    await file.close();
  }
}

function versionOf(custody: Backend): number {
  return custody instanceof FileBackend ? custody.version : 0;
}

/** A document that lives as long as the process. */
function memoryStore<T>(initial: T): {
  value: T;
  version: number;
  replace(next: T): Promise<void>;
  close(): Promise<void>;
} {
  return {
    value: initial,
    version: 0,
    async replace(next) {
      this.value = next;
      this.version += 1;
    },
    close: () => Promise.resolve(),
  };
}

export function notSound(problem: string): RonError {
  return new RonError('audit_integrity', `nothing is signed: ${problem}; see \`ron audit verify\``);
}
