/**
 * Converts the files of the earlier format into the store, at the first start.
 *
 *     anchor, custody, index, ops/ --> vault.new/ --> rename to vault/ --> remove the earlier files
 *
 * Contract: a crash at any point leaves the earlier files whole or the store whole, and the next start continues. A wrong key
 * or passphrase, a full disk, or files that are not from the same moment change nothing: the start fails and states why.
 * The earlier files are removed only by a store that was made from them: if an earlier version of kms has used them since,
 * the start fails (`integrity`) and both stay.
 * Bound: as the earlier format, about 16 000 keys. Cancellation: by the signal, before the rename.
 */
import { hash } from 'node:crypto';
import { readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AUDIENCE_ROOT } from '@ron/auth';
import { SECRETS, secretRecord, type SecretRecord } from '@ron/custody';
import { Table, type Draft, type LmdbStore } from '@ron/custody/store';
import { NEVER, RonError } from '@ron/kernel';
import { realFileSystem } from '@ron/log';
import { putEarlierRoot } from '../../audience/root-store.ts';
import { writeKey } from '../../keys/key-registry.ts';
import { putOp } from '../../ops/op-ledger.ts';
import { ANCHOR_KEY, ANCHORS } from '../anchor.ts';
import { META } from '../tables.ts';
import { readEarlierFiles, type EarlierFiles, type EarlierInit } from './earlier-files.ts';

export interface UpgradeInit extends EarlierInit {
  readonly open: (dir: string) => Promise<LmdbStore>;
  readonly warn: (what: string) => void;
  /** Called after each step, for tests. */
  readonly onStep?: (step: string) => void;
}

/** In the order of their removal. The anchor is last: without it the others could not be read. */
const EARLIER = ['ops', 'index', 'custody', 'anchor'];
const LOCKS = ['index.lock', 'custody.lock', 'anchor.lock'];
const MARK_KEY = 'converted';
const BATCH = 64;

/** `made_from`: the hash of the earlier anchor, which every use of the earlier files changes. */
const MARKS = new Table<{ readonly is_done: boolean; readonly made_from?: string | undefined }>(META);
const secrets = new Table<SecretRecord>(SECRETS);

export async function upgradeIfOld(init: UpgradeInit): Promise<void> {
  const names = await readdir(init.dir).catch(() => [] as string[]);
  if (!EARLIER.some((name) => names.includes(name))) return;
  if (!names.includes('vault')) await convert(init);
  await removeEarlier(init);
}

async function convert(init: UpgradeInit): Promise<void> {
  const { dir, warn, onStep } = init;
  const [made, final] = [join(dir, 'vault.new'), join(dir, 'vault')];
  await using files = await readEarlierFiles(init);
  const made_from = await anchorHash(dir);
  onStep?.('read');
  await rm(made, { recursive: true, force: true });
  {
    await using store = await init.open(made);
    onStep?.('opened');
    for (const edits of batchesOf(editsFor(store, files, made_from))) {
      await store.commit((draft) => edits.forEach((edit) => edit(draft)), init.signal);
      onStep?.('written');
    }
  }
  await realFileSystem.syncDir(made);
  onStep?.('complete');
  init.signal.throwIfAborted();
  await rename(made, final);
  await realFileSystem.syncDir(dir);
  onStep?.('renamed');
  warn(`${files.keys.length} keys in ${dir} were converted to the present format`);
}

/** The records of the store, and the mark that allows the removal of the earlier files. */
function editsFor(store: LmdbStore, files: EarlierFiles, made_from: string | undefined): ((draft: Draft) => void)[] {
  const { anchor } = files;
  return [
    ...files.secrets.map(({ key, alg, label, spent, secret }) => (draft: Draft): void => {
      const bytes = secret();
      secrets.put(draft, key, secretRecord(store, key, { alg, label, spent }, bytes));
      bytes.fill(0);
    }),
    ...files.keys.map((record) => (draft: Draft): void => {
      if (record.name === AUDIENCE_ROOT) putEarlierRoot(draft, record);
      else writeKey(draft, undefined, record);
    }),
    ...files.ops.map(
      ({ id, ...done }) =>
        (draft: Draft): void =>
          putOp(draft, id, done),
    ),
    (draft): void => {
      if (anchor !== undefined) ANCHORS.put(draft, ANCHOR_KEY, anchor);
      MARKS.put(draft, MARK_KEY, { is_done: false, made_from });
    },
  ];
}

function batchesOf<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / BATCH) }, (_, at) => all.slice(at * BATCH, (at + 1) * BATCH));
}

async function removeEarlier({ dir, open, onStep }: UpgradeInit): Promise<void> {
  await using store = await open(join(dir, 'vault'));
  const mark = MARKS.get(store, MARK_KEY);
  if (mark?.is_done !== false) return;
  const found = await anchorHash(dir);
  if (found !== undefined && found !== mark.made_from) {
    throw new RonError(
      'integrity',
      `the files of the earlier format in ${dir} were changed after ${join(dir, 'vault')} was made from them: move vault away to convert them again`,
    );
  }
  for (const name of [...EARLIER, ...LOCKS]) {
    await rm(join(dir, name), { recursive: true, force: true });
    onStep?.(`removed ${name}`);
  }
  await realFileSystem.syncDir(dir);
  await store.commit((draft) => MARKS.put(draft, MARK_KEY, { is_done: true }), NEVER);
  onStep?.('done');
}

/** Undefined if there is no anchor: it is removed last. */
async function anchorHash(dir: string): Promise<string | undefined> {
  try {
    return hash('sha256', await readFile(join(dir, 'anchor')));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
