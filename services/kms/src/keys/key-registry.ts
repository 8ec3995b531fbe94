/**
 * The registry of keys, in the record store.
 *
 * Contract: changes are applied one after another, each sees all earlier ones, and readers see a change only once it is on
 * disk. The version of a key only increases. A refused change, or one that cannot be written, has no effect. A change costs
 * the same for any number of keys.
 * Bound: `keys_max` keys, `VERSIONS_PER_KEY` times as many versions, `VERSIONS_MAX` of one key; of keys and versions one
 * tenant holds at most as many as are still free. `CACHE_BYTES_MAX` of keys in memory. A page of a list: `PAGE_VERSIONS_MAX`
 * versions, or one key. Overflow: `busy`, `storage_full`; a page ends early.
 * Cancellation: a waiting change is withdrawn; a change that is being written runs to its end. A list ends between slices.
 */
import { Cache } from '@ron/cache';
import { Table, type Draft, type RecordStore } from '@ron/custody/store';
import { RonError, sched } from '@ron/kernel';
import { KeyIndex } from './key-index.ts';
import { formatKid, nameOf, parseKid } from './kid.ts';
import {
  headOf,
  summaryOf,
  type KeyFields,
  type KeyRecord,
  type KeyVersion,
  type OpMark,
  type VersionSummary,
} from './key-record.ts';
import { opKey, RETENTION_MS } from '../ops/op-id.ts';
import * as tables from '../vault/tables.ts';

export interface KeyRegistryInit {
  readonly store: RecordStore;
  readonly keys_max: number;
}

export const VERSIONS_MAX = 4096;
const VERSIONS_PER_KEY = 10;
const CACHE_BYTES_MAX = 32 * 1024 * 1024;
/** Versions that are read in one turn of the event loop. */
const LOAD_VERSIONS = 64;
/** Keys of a list that are read in one turn of the event loop. */
const LIST_KEYS = 16;
export const PAGE_VERSIONS_MAX = 2 * VERSIONS_MAX;
/** About the size of a version in memory, besides its public keys. */
const VERSION_BYTES = 256;

/** Returns the changed or new record, given the current keys; throws to refuse the change. */
export type Edit = (index: KeyIndex) => KeyRecord;

/** A key as it is stored: its versions are records of their own. Keys that an earlier release stored have no summary. */
type StoredKey = KeyFields & { readonly versions: number; readonly summary?: VersionSummary };

/** A key as a list shows it. */
export interface ListedKey {
  readonly fields: KeyFields;
  readonly head: KeyVersion;
  readonly summary: VersionSummary;
}

/** Links an op_id to the version that it made, until the operation's answer is stored. */
interface MadeBy {
  readonly kid: string;
  readonly request_hash: string;
  readonly time_ms: number;
}

interface Held {
  readonly keys: number;
  readonly versions: number;
}

const KEYS = new Table<StoredKey>(tables.KEYS);
const VERSIONS = new Table<KeyVersion>(tables.VERSIONS);
const HELD = new Table<Held>(tables.TENANTS);
const MADE = new Table<MadeBy>(tables.MADE);

export interface Page {
  /** Names begin with it. */
  readonly prefix: string;
  /** Names follow it; empty: from the first. */
  readonly after: string;
  readonly limit: number;
}

export interface KeyPage {
  readonly keys: readonly ListedKey[];
  /** The last name of this page, if more keys follow. */
  readonly next?: string;
}

export class KeyRegistry {
  readonly #store: RecordStore;
  readonly #keys_max: number;
  readonly #cache = new Cache<KeyRecord>({ bytes_max: CACHE_BYTES_MAX, entry_bytes_max: CACHE_BYTES_MAX });
  #changes_total = 0;
  /** The current keys. */
  readonly index: KeyIndex;

  constructor({ store, keys_max }: KeyRegistryInit) {
    this.#store = store;
    this.#keys_max = keys_max;
    this.index = new KeyIndex({
      get size() {
        return KEYS.count(store);
      },
      cached: (name) => this.#cache.get(name),
      read: (name) => this.#read(name),
    });
  }

  /** Applies a change durably and returns the resulting record. */
  async change(edit: Edit, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#store.commit((draft) => this.#apply(draft, edit), signal);
  }

  /**
   * Reads keys into memory without blocking the event loop; undefined if they are there. Call it before an operation: the
   * index reads a key that is not in memory from the disk at once.
   */
  ready(kids: readonly string[], deadline: { readonly signal: AbortSignal }): Promise<void> | undefined {
    const missing = kids.map(nameOf).filter((name) => !this.#cache.has(name));
    return missing.length === 0 ? undefined : this.#load(missing, deadline.signal);
  }

  /**
   * Keys in the order of their names. Reads one version of each, in slices with a turn of the event loop between them, so
   * keys that change meanwhile are listed in their state before or after the change.
   */
  async page({ prefix, after, limit }: Page, { signal }: { readonly signal: AbortSignal }): Promise<KeyPage> {
    const keys: ListedKey[] = [];
    let last = after;
    let versions_total = 0;
    for (;;) {
      signal.throwIfAborted();
      const start = last >= prefix ? `${last}\0` : prefix;
      const slice = KEYS.range(this.#store, start, `${prefix}\uffff`, LIST_KEYS);
      const heads = slice.map(({ key, value }) => versionKey(key, value.versions));
      await this.#store.prefetch(tables.VERSIONS, heads, signal);
      for (const { key, value } of slice) {
        versions_total += value.versions;
        if (keys.length === limit || (keys.length > 0 && versions_total > PAGE_VERSIONS_MAX))
          return { keys, next: last };
        keys.push(await this.#listed(value, signal));
        last = key;
      }
      if (slice.length < LIST_KEYS) return { keys };
      await sched.pause('keys.list');
    }
  }

  async #listed({ versions, summary, ...fields }: StoredKey, signal: AbortSignal): Promise<ListedKey> {
    const { name } = fields;
    if (summary !== undefined) {
      const [head] = readVersions(this.#store, name, versions - 1, versions);
      return { fields, head: head!, summary };
    }
    await this.ready([name], { signal });
    const record = this.index.record(name);
    return { fields: record, head: headOf(record), summary: summaryOf(record) };
  }

  /** The kid that an operation made, if its process died before it stored the answer. */
  madeBy(tenant: string, { op_id, request_hash }: OpMark): string | undefined {
    const made = MADE.get(this.#store, opKey(tenant, op_id));
    if (made === undefined || sched.wall_ms() - made.time_ms > RETENTION_MS) return undefined;
    if (made.request_hash === request_hash) return made.kid;
    throw new RonError('conflict', `op_id ${op_id} was used for another request`);
  }

  #apply(draft: Draft, edit: Edit): KeyRecord {
    // [kms I-2] Edits run one at a time, and they alone change the keys.
    const latest = (name: string): KeyRecord | undefined =>
      (draft.decoded(tables.KEYS, name) as KeyRecord | undefined) ?? this.#cache.get(name);
    const read = (name: string): KeyRecord | undefined => latest(name) ?? this.#read(name);
    const record = edit(new KeyIndex({ size: KEYS.count(draft), cached: latest, read }));
    const known = read(record.name);
    if (record === known) return record;
    this.#check(draft, known, record);
    writeKey(draft, known, record);
    // [kms I-1] Signers read the cache; none of them waits for this write.
    draft.onCommitted(() => this.#publish(record));
    return record;
  }

  #publish(record: KeyRecord): void {
    this.#changes_total += 1;
    this.#keep(record);
  }

  #keep(record: KeyRecord): void {
    const bytes = record.versions.reduce((sum, version) => sum + bytesOf(version), 0);
    this.#cache.set(record.name, record, bytes);
  }

  #read(name: string): KeyRecord | undefined {
    const stored = KEYS.get(this.#store, name);
    if (stored === undefined) return undefined;
    const record = recordOf(stored, readVersions(this.#store, name, 0, stored.versions));
    this.#keep(record);
    return record;
  }

  async #load(names: readonly string[], signal: AbortSignal): Promise<void> {
    const known = names.filter((name) => isKey(name));
    await this.#store.prefetch(tables.KEYS, known, signal);
    for (const name of known) {
      const changes_total = this.#changes_total;
      const stored = KEYS.get(this.#store, name);
      if (stored === undefined || this.#cache.has(name)) continue;
      const versions: KeyVersion[] = [];
      while (versions.length < stored.versions) {
        const upto = Math.min(versions.length + LOAD_VERSIONS, stored.versions);
        const keys = Array.from({ length: upto - versions.length }, (_, at) =>
          versionKey(name, versions.length + at + 1),
        );
        await this.#store.prefetch(tables.VERSIONS, keys, signal);
        versions.push(...readVersions(this.#store, name, versions.length, upto));
      }
      const handle = versions.at(-1)?.handle;
      if (handle !== undefined) await this.#store.prefetch(tables.SECRETS, [handle], signal);
      // If a key changed meanwhile, this may be a mixture of two states.
      if (this.#changes_total === changes_total) this.#keep(recordOf(stored, versions));
    }
  }

  #check(draft: Draft, known: KeyRecord | undefined, record: KeyRecord): void {
    const held = HELD.get(draft, tables.heldKeys(record.tenant)) ?? { keys: 0, versions: 0 };
    const versions_max = this.#keys_max * VERSIONS_PER_KEY;
    if (known === undefined && held.keys >= this.#keys_max - KEYS.count(draft)) throw noRoom('keys', this.#keys_max);
    if (record.versions.length > VERSIONS_MAX) {
      throw new RonError('storage_full', `the key has reached its limit of ${VERSIONS_MAX} versions`);
    }
    const isRotation = record.versions.length > (known?.versions.length ?? 0);
    if (isRotation && held.versions >= versions_max - VERSIONS.count(draft)) throw noRoom('versions', versions_max);
    if (known !== undefined && headOf(record).version < headOf(known).version) {
      throw new RonError('internal', `assertion failed: versions of ${record.name} only grow`);
    }
  }
}

/** Writes the record and those versions that changed. */
export function writeKey(draft: Draft, known: KeyRecord | undefined, record: KeyRecord): void {
  const { versions, ...fields } = record;
  const { name, tenant } = record;
  const stored: StoredKey = { ...fields, versions: versions.length, summary: summaryOf(record) };
  draft.put(tables.KEYS, name, Buffer.from(JSON.stringify(stored)), record);
  versions.forEach((version, at) => {
    if (version === known?.versions[at]) return;
    VERSIONS.put(draft, versionKey(name, version.version), version);
    const { made_by, created_ms: time_ms } = version;
    if (made_by === undefined || at < (known?.versions.length ?? 0)) return;
    const kid = formatKid(name, version.version);
    MADE.put(draft, opKey(tenant, made_by.op_id), { kid, request_hash: made_by.request_hash, time_ms });
  });
  const added = versions.length - (known?.versions.length ?? 0);
  if (added === 0) return;
  const held = HELD.get(draft, tables.heldKeys(tenant)) ?? { keys: 0, versions: 0 };
  HELD.put(draft, tables.heldKeys(tenant), {
    keys: held.keys + (known === undefined ? 1 : 0),
    versions: held.versions + added,
  });
}

function recordOf(stored: StoredKey, versions: readonly KeyVersion[]): KeyRecord {
  const { summary: _, ...fields } = stored;
  return { ...fields, versions };
}

/** The versions after number `from`, up to number `upto`. */
function readVersions(store: RecordStore, name: string, from: number, upto: number): KeyVersion[] {
  const found = VERSIONS.range(store, versionKey(name, from + 1), versionKey(name, upto + 1), upto - from);
  if (found.length !== upto - from) throw new RonError('integrity', `the vault lacks a version of ${name}`);
  return found.map(({ value }) => value);
}

const VERSION_DIGITS = 6;
const versionKey = (name: string, version: number): string =>
  `${name}#${String(version).padStart(VERSION_DIGITS, '0')}`;

const bytesOf = ({ public: parts }: KeyVersion): number =>
  parts.reduce((sum, { pubkey_b64 }) => sum + pubkey_b64.length, VERSION_BYTES);

function isKey(name: string): boolean {
  try {
    return parseKid(name).name === name;
  } catch {
    return false;
  }
}

function noRoom(what: 'keys' | 'versions', max: number): RonError {
  return new RonError(
    'storage_full',
    `the limit of ${max} ${what} (kms.keys_max) is reached: one tenant holds at most as many as are free`,
  );
}
