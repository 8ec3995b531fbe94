/**
 * All keys at one moment, by name.
 *
 * Promise: never changes; a change makes a new one. What a reader looked up belongs together.
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
  /** Made when a list is asked for. */
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

  /** In the order of their names. */
  sorted(): readonly KeyRecord[] {
    this.#sorted ??= [...this.#records.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
    return this.#sorted;
  }

  get(name: string): KeyRecord | undefined {
    return this.#records.get(name);
  }

  /** With one key added or replaced. */
  with(record: KeyRecord): KeyIndex {
    return new KeyIndex(new Map(this.#records).set(record.name, record));
  }

  /** The key of a kid; 400 when it is none, 404 when there is no such key. */
  record(kid: string): KeyRecord {
    const record = this.#records.get(nameOf(kid));
    if (record !== undefined) return record;
    const { name } = parseKid(kid);
    throw new RonError('not_found', `there is no key ${name}`);
  }

  /** A version by its kid; the current one when the kid names none. Also a deleted one, and one below `min_version`. */
  find(kid: string): Found {
    const record = this.record(kid);
    const head = headOf(record);
    if (kid.length === record.name.length || isVersion(kid, record, head)) return { record, version: head };
    const { version: number } = parseKid(kid);
    const version = versionOf(record, number!);
    if (version === undefined) throw new RonError('not_found', `${record.name} has no version ${number}`);
    return { record, version };
  }

  /** The current version, which alone signs, wraps and is rotated. 409 when the kid names another. */
  current(kid: string): Found {
    const found = this.find(kid);
    const head = headOf(found.record);
    if (found.version === head) return found;
    throw new RonError(
      'conflict',
      `version ${found.version.version} is retired, ${found.record.name} is at #v${head.version}`,
    );
  }
}

/** Whether `kid` is the name and number of this version; without taking the text apart. */
function isVersion(kid: string, { name }: KeyRecord, { version }: KeyVersion): boolean {
  return kid.endsWith(`#v${version}`) && kid.length === name.length + 2 + String(version).length;
}
