/**
 * Opens the parts of the vault on a disk that stays frozen until all of them are known to be consistent.
 *
 * Contract: existing parts are opened and read. A part that is missing but existed before is refused or reported as a
 * problem, and never created again silently. A first start that crashed is resumed: it creates the anchor, the private keys,
 * the content of the anchor, the list of keys and the rest, in this order, and uses nothing before all of it exists.
 */
import { FileBackend, MemoryBackend, type Backend, type Unlock } from '@ron/custody';
import { isRonError, RonError, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { EMPTY_DOCUMENT, type KeyDocument } from '../keys/key-record.ts';
import type { KeyDocumentStore } from '../keys/key-registry.ts';
import { OP_KEY_BYTES, OpLedger } from '../ops/op-ledger.ts';
import { openStore, type Anchor, type LogHead, type Store } from './anchor.ts';
import type { FreezableDisk } from './freezable-disk.ts';

/** State that is shared while the parts are opened. */
export interface Opening {
  readonly disk: FreezableDisk;
  /** Undefined in amnesia mode: then everything is in memory. */
  readonly unlock: Unlock | undefined;
  /** The parts that existed before. */
  readonly there: ReadonlySet<string>;
  readonly signal: AbortSignal;
  readonly at: (name: string) => string;
  /** Inconsistencies found so far. */
  readonly problems: string[];
  /** Registers a part to be closed at the end. */
  readonly adopt: <T extends { close(): Promise<void> }>(part: T) => T;
}

/** The list of keys, and the log head that it records. */
export interface IndexDocument extends KeyDocument {
  readonly log_head?: LogHead | undefined;
}

const FILES = ['anchor', 'custody', 'index', 'ops/head'];
const DIRECTORIES = ['audit', 'ops/segments'];

/** Lists the existing parts. */
export async function partsIn(fs: FileSystem, dir: string): Promise<Set<string>> {
  const names = async (below: string): Promise<string[]> => {
    try {
      return (await fs.list(below === '' ? dir : `${dir}/${below}`)).map((name) =>
        below === '' ? name : `${below}/${name}`,
      );
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  };
  const files = new Set([...(await names('')), ...(await names('ops'))]);
  const found = new Set(FILES.filter((name) => files.has(name)));
  for (const name of DIRECTORIES) if ((await names(name)).some((each) => !each.endsWith('/lock'))) found.add(name);
  return found;
}

export interface Keys {
  /** Undefined if it is missing. */
  readonly anchors: Store<Anchor | undefined> | undefined;
  /** Its content, read or newly created; undefined if it was lost. */
  readonly anchor: Anchor | undefined;
  readonly custody: Backend;
  readonly index: Store<IndexDocument>;
  /** The list of keys. Each write of it records the log head. */
  readonly store: KeyDocumentStore;
}

export async function openKeys(opening: Opening, origin: string | undefined): Promise<Keys> {
  const { disk, there, problems, signal, adopt } = opening;
  const anchors =
    there.size === 0 || there.has('anchor')
      ? adopt(await openDocument<Anchor | undefined>(opening, 'anchor', 'kms-anchor', undefined, 0))
      : undefined;
  const before = anchors?.value;
  if (before !== undefined && before.ops_key_b64 === undefined) throw tooOld(opening.at('anchor'));
  const note = (): LogHead | undefined => anchors?.value?.checkpoint;
  const found = there.has('custody')
    ? adopt(await openCustody(opening, before?.custody_version ?? 0, note))
    : undefined;
  const isUsed = [...there].some((part) => part !== 'anchor' && part !== 'custody') || notedBy(found) !== undefined;
  if (anchors !== undefined && before?.checkpoint === undefined && !isUsed) await disk.thaw();
  else if (before === undefined) problems.push(`anchor is ${anchors === undefined ? 'missing' : 'empty'}: restore it`);
  const custody = found ?? adopt(await openCustody(opening, before?.custody_version ?? 0, note));
  const anchor = before ?? (disk.isFrozen ? undefined : await newAnchor(custody, origin, signal));
  if (anchor !== before) await anchors!.replace(anchor, signal);
  const index = adopt(
    await newest(
      (version_min) => openDocument<IndexDocument>(opening, 'index', 'kms-index', EMPTY_DOCUMENT, version_min),
      before?.index_version ?? 0,
      problems,
    ),
  );
  const store: KeyDocumentStore = {
    get value() {
      return index.value;
    },
    get version() {
      return index.version;
    },
    replace: (next, until) => index.replace({ ...next, log_head: note() }, until),
  };
  return { anchors, anchor, custody, index, store };
}

export interface Ops {
  /** Records the last checkpoint; undefined if it is missing. */
  readonly head: Store<LogHead | undefined> | undefined;
  readonly ledger: OpLedger | undefined;
  readonly problem: string | undefined;
  openHead(): Promise<Store<LogHead | undefined>>;
  openLedger(fs: FileSystem): Promise<OpLedger>;
}

export async function openOps(opening: Opening, anchor: Anchor | undefined, entries_max: number): Promise<Ops> {
  const { there, disk, signal, adopt, at } = opening;
  const known = anchor?.ops;
  const key = anchor === undefined ? sched.randomBytes(OP_KEY_BYTES) : Buffer.from(anchor.ops_key_b64, 'base64');
  const openHead = async (): Promise<Store<LogHead | undefined>> =>
    adopt(await openDocument<LogHead | undefined>(opening, 'ops/head', 'kms-ops-head', undefined, 0));
  const openLedger = async (fs: FileSystem): Promise<OpLedger> =>
    adopt(await OpLedger.open({ dir: at('ops'), fs, entries_max, key, known, signal }));
  const head = there.has('ops/head') ? await openHead() : undefined;
  const ledger = there.has('ops/segments') && anchor !== undefined ? await openLedger(disk) : undefined;
  const lost = (known?.count ?? 0) > 0 ? 'it is missing: restore it' : undefined;
  return { head, ledger, problem: ledger === undefined ? lost : ledger.problem, openHead, openLedger };
}

function openDocument<T>(
  { disk, unlock, signal, at }: Opening,
  name: string,
  purpose: string,
  initial: T,
  version_min: number,
): Promise<Store<T>> {
  return openStore({ path: at(name), unlock, purpose, initial, version_min, fs: disk, signal });
}

async function openCustody(
  { disk, unlock, signal, at, problems }: Opening,
  version_min: number,
  note: () => LogHead | undefined,
): Promise<Backend> {
  if (unlock === undefined) return new MemoryBackend();
  const open = (least: number): Promise<Backend> =>
    FileBackend.open({ path: at('custody'), unlock, version_min: least, note, fs: disk, signal });
  return await newest(open, version_min, problems);
}

/** Opens a file that should have at least this version. An older one opens too, but is reported as a problem. */
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

async function newAnchor(custody: Backend, origin: string | undefined, signal: AbortSignal): Promise<Anchor> {
  const ed25519 = await custody.create('ed25519', 'audit log', signal);
  const ml_dsa_44 = await custody.create('ml-dsa-44', 'audit log', signal);
  return {
    origin: origin ?? `ron.local/kms/${Buffer.from(sched.randomBytes(6)).toString('hex')}`,
    log_keys: { ed25519: ed25519.key, ml_dsa_44: ml_dsa_44.key },
    ops_key_b64: Buffer.from(sched.randomBytes(OP_KEY_BYTES)).toString('base64'),
    published: 0,
    time_ms: sched.wall_ms(),
    index_version: 0,
    custody_version: 0,
  };
}

function tooOld(path: string): RonError {
  return new RonError('not_ready', `${path} was written by an earlier version and cannot be upgraded`);
}

/** The log head that the file of private keys records. */
export function notedBy(custody: Backend | undefined): LogHead | undefined {
  return custody instanceof FileBackend ? (custody.noted as LogHead | undefined) : undefined;
}

export function versionOf(custody: Backend): number {
  return custody instanceof FileBackend ? custody.version : 0;
}
