/**
 * A view of all keys, by name.
 *
 * Contract: one call sees one state. The view of the registry shows the state on stable storage; the view of an edit shows
 * earlier edits too.
 */
import { RonError } from '@ron/kernel';
import { nameOf, parseKid } from './kid.ts';
import { headOf, versionOf, type KeyRecord, type KeyVersion } from './key-record.ts';

/** A key and one of its versions. */
export interface Found {
  readonly record: KeyRecord;
  readonly version: KeyVersion;
}

/** The keys behind a view. */
export interface KeySource {
  /** The number of keys. */
  readonly size: number;
  /** `name` has the form of a name. */
  read(name: string): KeyRecord | undefined;
  /** Only if it needs no parsing and no disk. */
  cached(name: string): KeyRecord | undefined;
}

export class KeyIndex {
  readonly #source: KeySource;

  constructor(source: KeySource) {
    this.#source = source;
  }

  get size(): number {
    return this.#source.size;
  }

  /** Undefined if the key does not exist, or the text is not a name. */
  get(name: string): KeyRecord | undefined {
    return this.#source.cached(name) ?? (isName(name) ? this.#source.read(name) : undefined);
  }

  /** The key of a kid. Throws `validation` if the text is not a kid, and `not_found` if the key does not exist. */
  record(kid: string): KeyRecord {
    const cached = this.#source.cached(nameOf(kid));
    if (cached !== undefined) return cached;
    const { name } = parseKid(kid);
    const record = this.#source.read(name);
    if (record === undefined) throw new RonError('not_found', `the key ${name} does not exist`);
    return record;
  }

  /** The version of a kid, or the current one if it has none. Includes deleted versions and those below `min_version`. */
  find(kid: string): Found {
    const record = this.record(kid);
    const head = headOf(record);
    if (kid.length === record.name.length || isVersion(kid, record, head)) return { record, version: head };
    const { version: number } = parseKid(kid);
    const version = versionOf(record, number!);
    if (version === undefined) throw new RonError('not_found', `${record.name} has no version ${number}`);
    return { record, version };
  }

  /** The current version, the only one that signs, wraps and can be rotated. Throws `conflict` if the kid names another. */
  current(kid: string): Found {
    const found = this.find(kid);
    const head = headOf(found.record);
    if (found.version === head) return found;
    throw new RonError(
      'conflict',
      `version ${found.version.version} is retired: ${found.record.name} is at #v${head.version}`,
    );
  }
}

function isName(text: string): boolean {
  try {
    return parseKid(text).name === text;
  } catch {
    return false;
  }
}

/** Whether `kid` names this version; does not parse the text. */
function isVersion(kid: string, { name }: KeyRecord, { version }: KeyVersion): boolean {
  return kid.endsWith(`#v${version}`) && kid.length === name.length + 2 + String(version).length;
}
