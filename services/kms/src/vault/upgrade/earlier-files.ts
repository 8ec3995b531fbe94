/**
 * Reads the files of the earlier format: `anchor`, `custody`, `index` and `ops/` in the data directory.
 *
 * Contract: reads only, except that the lock files are created. Each of these files recorded something about the others; if
 * they are not from the same moment, nothing is returned and the error names the file (`integrity`). Whether the audit log
 * is of the same moment is not checked here.
 * Bound: 16 384 keys and the operations of 30 days, in memory. Cancellation: by the signal.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { join } from 'node:path';
import { SealedFile, type Codec, type SecretRecord, type Unlock } from '@ron/custody';
import { RonError } from '@ron/kernel';
import { SegmentLog, type FileSystem } from '@ron/log';
import type { KeyRecord } from '../../keys/key-record.ts';
import type { Done } from '../../ops/op-ledger.ts';
import type { Anchor, LogHead } from '../anchor.ts';

export interface EarlierInit {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly unlock: Unlock;
  readonly signal: AbortSignal;
}

export interface EarlierSecret extends Omit<SecretRecord, 'sealed_b64'> {
  readonly key: string;
  /** A copy of the secret, which the caller zeroes. */
  readonly secret: () => Uint8Array;
}

export interface EarlierFiles extends AsyncDisposable {
  /** Undefined: the first start did not complete, and nothing was used. */
  readonly anchor: Anchor | undefined;
  readonly secrets: readonly EarlierSecret[];
  readonly keys: readonly KeyRecord[];
  /** Each with its key in the store. */
  readonly ops: readonly (Done & { readonly id: string })[];
}

interface EarlierAnchor extends Anchor {
  readonly ops_key_b64: string;
  readonly index_version: number;
  readonly custody_version: number;
  readonly ops?: { readonly first: number; readonly last: number; readonly count: number };
}

interface Index {
  readonly keys: readonly KeyRecord[];
  readonly log_head?: LogHead;
}

interface Custody {
  readonly note: LogHead | undefined;
  readonly entries: readonly (SecretRecord & { readonly key: string })[];
}

const MAC_BYTES = 32;

export async function readEarlierFiles(init: EarlierInit): Promise<EarlierFiles> {
  const opened: AsyncDisposable[] = [];
  try {
    return await readAll(init, opened);
  } catch (error) {
    for (const each of opened.toReversed()) await each[Symbol.asyncDispose]();
    throw error;
  }
}

async function readAll(init: EarlierInit, opened: AsyncDisposable[]): Promise<EarlierFiles> {
  const { dir, fs } = init;
  const there = new Set(await fs.list(dir));
  const open = async <T>(
    name: string,
    purpose: string,
    version_min: number,
    codec: Codec<T>,
  ): Promise<SealedFile<T>> => {
    const path = join(dir, name);
    const { unlock, signal } = init;
    const file = await SealedFile.open<T>({
      path,
      unlock,
      purpose,
      codec,
      version_min,
      fs,
      signal,
      initial: undefined as T,
    });
    opened.push(file);
    return file;
  };
  const close = async (): Promise<void> => {
    for (const each of opened.splice(0).toReversed()) await each[Symbol.asyncDispose]();
  };
  const rest = { [Symbol.asyncDispose]: close };
  // It is open until the conversion is complete: no other process converts the same files.
  const anchor = there.has('anchor')
    ? (await open('anchor', 'kms-anchor', 0, json<EarlierAnchor | null>())).value
    : null;
  if (anchor === null) {
    if (there.has('index') || there.has('ops')) throw mixed('anchor is missing or empty');
    return { anchor: undefined, secrets: [], keys: [], ops: [], ...rest };
  }
  if (anchor.ops_key_b64 === undefined) throw mixed('anchor was written by a version that is too old');
  for (const name of ['custody', 'index']) if (!there.has(name)) throw mixed(`${name} is missing`);
  const custody = await open('custody', 'custody-keys', anchor.custody_version, CUSTODY);
  const index = (await open('index', 'kms-index', anchor.index_version, json<Index>())).value;
  const hasHead = there.has('ops') && (await fs.list(join(dir, 'ops'))).includes('head');
  const head = hasHead ? (await open('ops/head', 'kms-ops-head', 0, json<LogHead | null>())).value : null;
  requireSameMoment(anchor, { custody: custody.value.note, index: index.log_head, 'ops/head': head ?? undefined });
  const { origin, log_keys, checkpoint, published, time_ms, is_closed } = anchor;
  return {
    anchor: {
      origin,
      log_keys,
      published,
      time_ms,
      ...(checkpoint && { checkpoint }),
      ...(is_closed && { is_closed }),
    },
    secrets: custody.value.entries.map(({ key, alg, label, spent, sealed_b64 }) => ({
      key,
      alg,
      label,
      spent,
      secret: () => custody.unseal(`${key}\n${alg}`, Buffer.from(sealed_b64, 'base64')),
    })),
    keys: index.keys,
    ops: there.has('ops') ? await readOps(init, anchor) : [],
    ...rest,
  };
}

function requireSameMoment(anchor: EarlierAnchor, heads: Readonly<Record<string, LogHead | undefined>>): void {
  const anchored = anchor.checkpoint?.size ?? 0;
  for (const [name, head] of Object.entries(heads)) {
    if (head === undefined) continue;
    if (head.origin !== anchor.origin) throw mixed(`${name} belongs to another node`);
    if (head.size > anchored) throw mixed(`anchor was rolled back: ${name} records a later checkpoint`);
  }
  const recorded = heads['ops/head']?.size ?? 0;
  if (recorded < anchor.published) throw mixed('ops/head was rolled back: anchor records a later checkpoint');
}

interface OpMeta extends Omit<Done, 'answer'> {
  readonly number: number;
}

async function readOps({ dir, fs, signal }: EarlierInit, anchor: EarlierAnchor): Promise<EarlierFiles['ops']> {
  const key = Buffer.from(anchor.ops_key_b64, 'base64');
  const done = new Map<string, Done & { readonly id: string }>();
  const numbers = new Set<number>();
  const log = await SegmentLog.open({
    dir: join(dir, 'ops'),
    fs,
    segment_bytes: 8 * 1024 * 1024,
    onRecord: ({ id: id_bytes, payload_bytes }, _place, body) => {
      const id = Buffer.from(id_bytes);
      const payload = body.subarray(0, payload_bytes);
      const meta = body.subarray(payload_bytes);
      const text = meta.toString('utf8', MAC_BYTES);
      const mac = createHmac('sha256', key)
        .update(`ron-kms/ops/v1\n${id.toString('base64')}\n${text}\n`)
        .update(payload);
      if (meta.length <= MAC_BYTES || !timingSafeEqual(mac.digest(), meta.subarray(0, MAC_BYTES))) {
        throw mixed('a record of ops was modified or belongs to another node');
      }
      const { number, ...fields } = JSON.parse(text) as OpMeta;
      numbers.add(number);
      const answer = JSON.parse(payload.toString()) as unknown;
      done.set(id.toString('base64url'), { ...fields, answer, id: id.toString('base64url') });
    },
    signal,
  });
  await log.close();
  const { first = 0, last = 0, count = 0 } = anchor.ops ?? {};
  const found = [...numbers].filter((number) => number >= first && number <= last).length;
  if (found < count) throw mixed(`ops lacks ${count - found} of ${count} completed operations`);
  return [...done.values()];
}

/** JSON has no undefined: an empty document is null. */
function json<T>(): Codec<T> {
  return {
    encode: () => {
      throw new RonError('internal', 'assertion failed: files of the earlier format are not written');
    },
    decode: (bytes) => JSON.parse(Buffer.from(bytes).toString()) as T,
  };
}

/** One line per key, preceded by a line with the log head if there is one. */
const CUSTODY: Codec<Custody> = {
  ...json<Custody>(),
  decode: (bytes) => {
    const lines = Buffer.from(bytes).toString().split('\n').slice(0, -1);
    const parsed = lines.map((line) => JSON.parse(line) as Custody['entries'][number] | { readonly note: LogHead });
    const entries = parsed.filter((each) => 'key' in each);
    const [first] = parsed;
    return { note: first !== undefined && 'note' in first ? first.note : undefined, entries };
  },
};

function mixed(why: string): RonError {
  return new RonError('integrity', `the vault is not converted to the present format: ${why}; restore the newest copy`);
}
