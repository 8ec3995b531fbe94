/**
 * An immutable snapshot of all keys, by name.
 *
 * Contract: a change makes a new snapshot, so lookups in one snapshot are consistent.
 */
import { RonError } from '@ron/kernel';
import { nameOf, parseKid } from './kid.ts';
import { headOf, versionOf, type KeyDocument, type KeyRecord, type KeyVersion } from './key-record.ts';

/** A key and one of its versions. */
export interface Found {
  readonly record: KeyRecord;
  readonly version: KeyVersion;
}

export class KeyIndex {
  readonly #records: ReadonlyMap<string, KeyRecord>;
  /** Sorted on first use. */
  #sorted: readonly KeyRecord[] | undefined;

  private constructor(records: ReadonlyMap<string, KeyRecord>) {
    this.#records = records;
  }

  static of(document: KeyDocument): KeyIndex {
    return new KeyIndex(new Map(document.keys.map((record) => [record.name, record])));
  }

  get size(): number {
    return this.#records.size;
  }

  get document(): KeyDocument {
    return { format: 1, keys: [...this.#records.values()] };
  }

  records(): Iterable<KeyRecord> {
    return this.#records.values();
  }

  /** Sorted by name. */
  sorted(): readonly KeyRecord[] {
    this.#sorted ??= [...this.#records.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
    return this.#sorted;
  }

  get(name: string): KeyRecord | undefined {
    return this.#records.get(name);
  }

  /** A snapshot with one key added or replaced. */
  with(record: KeyRecord): KeyIndex {
    return new KeyIndex(new Map(this.#records).set(record.name, record));
  }

  /** The key of a kid. Throws `validation` if the text is not a kid, and `not_found` if the key does not exist. */
  record(kid: string): KeyRecord {
    const record = this.#records.get(nameOf(kid));
    if (record !== undefined) return record;
    const { name } = parseKid(kid);
    throw new RonError('not_found', `the key ${name} does not exist`);
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

/** Whether `kid` names this version; does not parse the text. */
function isVersion(kid: string, { name }: KeyRecord, { version }: KeyVersion): boolean {
  return kid.endsWith(`#v${version}`) && kid.length === name.length + 2 + String(version).length;
}
