/**
 * The names of a cache on disk and the objects that they refer to, in memory.
 *
 * Contract: an object is free once no name refers to it, no reader holds it and, if it is large, it was not used for
 * `GRACE_MS`: a large object is read in steps, and the first may be about to come. `oldest` lists names in the order in
 * which they were set or given another round. All calls are synchronous, so each is one step for concurrent callers.
 * Bound: that of its owner; `unnamed_bytes_max` for objects without a name, beyond which the oldest of them are free at once,
 * apart from those that a reader holds; at most `nameBytes` of memory for each name, measured in named-objects.memory.test.ts.
 */
import { sched, touch } from '@ron/kernel';
import { recordBytes } from '@ron/log';
import type { Address } from '@ron/proto';
import { MEDIA_TYPE_DEFAULT } from '../objects/put-object.ts';

/** Two map entries, two objects, and the strings besides the characters of the name. */
const NAME_OVERHEAD_BYTES = 416;
const CHAR_BYTES = 2;

/** The memory for one name with an object of its own. */
export const nameBytes = (name: string): number => NAME_OVERHEAD_BYTES + name.length * CHAR_BYTES;

/** The longest time between a look-up of a large object and the first read, or between its last byte and its name. */
const GRACE_MS = 10_000;
const USES_MAX = 3;
/** For each chunk of a large object: two headers, the padding of its record, and its entry in the page. */
const CHUNK_OVERHEAD_BYTES = 192;
const MANIFEST_BYTES = 512;

/** A stored object and its users. */
export interface ObjectRef {
  readonly address: Address;
  /** The bytes of its records on disk. */
  readonly bytes: number;
  readonly isLarge: boolean;
  /** Names that refer to it, and writers that are about to name it. */
  names: number;
  /** Readers in progress. */
  holds: number;
  used_ms: number;
}

export interface NamedObject {
  readonly name: string;
  readonly object: ObjectRef;
  /** The bytes of its note on disk. */
  readonly note_bytes: number;
  /** The number of removals that had begun when it was set: later ones concern it. */
  readonly removals: number;
  /** Look-ups since it was set or last given another round, up to a small maximum. */
  uses: number;
}

export interface NamedObjectsInit {
  /** Objects above this size are large: they have several records. */
  readonly chunk_bytes: number;
  readonly unnamed_bytes_max: number;
}

export class NamedObjects {
  readonly #init: NamedObjectsInit;
  /** The oldest first. */
  readonly #names = new Map<string, NamedObject>();
  readonly #objects = new Map<Address, ObjectRef>();
  /** Objects without a name, the oldest first. */
  readonly #unnamed = new Set<ObjectRef>();
  #bytes = 0;
  #unnamed_bytes = 0;
  #names_bytes = 0;

  constructor(init: NamedObjectsInit) {
    this.#init = init;
  }

  get size(): number {
    touch(this);
    return this.#names.size;
  }

  /** The memory of all names. */
  get names_bytes(): number {
    touch(this);
    return this.#names_bytes;
  }

  /** The bytes on disk of all names and their objects. */
  get bytes(): number {
    touch(this);
    return this.#bytes - this.#unnamed_bytes;
  }

  get(name: string): NamedObject | undefined {
    touch(this);
    return this.#names.get(name);
  }

  hasObject(address: Address): boolean {
    touch(this);
    return this.#objects.has(address);
  }

  /** All names. Those that are set or renewed during the iteration come again. */
  entries(): IterableIterator<NamedObject> {
    touch(this);
    return this.#names.values();
  }

  /** The oldest names, in order, at most `count`. */
  oldest(count: number): NamedObject[] {
    touch(this);
    return this.#names.values().take(count).toArray();
  }

  use(entry: NamedObject): void {
    touch(this);
    if (entry.uses < USES_MAX) entry.uses += 1;
    entry.object.used_ms = sched.now_ms();
  }

  /** Gives the name another round: it becomes the newest, with one use less. */
  renew(entry: NamedObject): void {
    touch(this);
    if (entry.uses > 0) entry.uses -= 1;
    this.#names.delete(entry.name);
    this.#names.set(entry.name, entry);
  }

  /** Claims an object for a name that is about to be set, or until `release`. */
  claim(address: Address, size: number): ObjectRef {
    touch(this);
    let object = this.#objects.get(address);
    if (object === undefined) {
      object = { address, ...this.#costOf(size), names: 0, holds: 0, used_ms: sched.now_ms() };
      this.#objects.set(address, object);
      this.#bytes += object.bytes;
    }
    object.names += 1;
    object.used_ms = sched.now_ms();
    if (this.#unnamed.delete(object)) this.#unnamed_bytes -= object.bytes;
    return object;
  }

  release(object: ObjectRef): void {
    touch(this);
    object.names -= 1;
    if (object.names === 0) this.#addUnnamed(object);
  }

  /** Sets a name for a claimed object. The name that it replaces, if any, is released. */
  set(name: string, object: ObjectRef, note_bytes: number, removals: number): void {
    const former = this.delete(name);
    this.#names.set(name, { name, object, note_bytes, removals, uses: former?.uses ?? 0 });
    this.#names_bytes += nameBytes(name);
    this.#bytes += note_bytes;
  }

  delete(name: string): NamedObject | undefined {
    touch(this);
    const entry = this.#names.get(name);
    if (entry === undefined) return undefined;
    this.#names.delete(name);
    this.#names_bytes -= nameBytes(name);
    this.#bytes -= entry.note_bytes;
    this.release(entry.object);
    return entry;
  }

  hold(object: ObjectRef): Disposable {
    touch(this);
    object.holds += 1;
    return {
      [Symbol.dispose]: () => {
        touch(this);
        object.holds -= 1;
        object.used_ms = sched.now_ms();
      },
    };
  }

  holdAddress(address: Address): Disposable {
    const object = this.#objects.get(address);
    return object === undefined ? { [Symbol.dispose]: () => undefined } : this.hold(object);
  }

  #addUnnamed(object: ObjectRef): void {
    this.#unnamed.add(object);
    this.#unnamed_bytes += object.bytes;
  }

  /** Whether no reader needs the object, which has no name. */
  #isFree(object: ObjectRef): boolean {
    if (object.holds > 0) return false;
    if (!object.isLarge || sched.now_ms() - object.used_ms >= GRACE_MS) return true;
    return this.#unnamed_bytes > this.#init.unnamed_bytes_max;
  }

  /** Takes objects that are free, at most `count`: from now on they are not known here. */
  takeFree(count: number): ObjectRef[] {
    touch(this);
    const free: ObjectRef[] = [];
    for (const object of this.#unnamed) {
      if (free.length === count) break;
      if (!this.#isFree(object)) continue;
      free.push(object);
      this.#unnamed.delete(object);
      this.#objects.delete(object.address);
      this.#unnamed_bytes -= object.bytes;
      this.#bytes -= object.bytes;
    }
    return free;
  }

  /** Takes back an object that could not be removed. */
  putBack(object: ObjectRef): void {
    touch(this);
    if (this.#objects.has(object.address)) return;
    this.#objects.set(object.address, object);
    this.#addUnnamed(object);
    this.#bytes += object.bytes;
  }

  #costOf(size: number): Pick<ObjectRef, 'bytes' | 'isLarge'> {
    const isLarge = size > this.#init.chunk_bytes;
    if (!isLarge) return { isLarge, bytes: recordBytes(size, MEDIA_TYPE_DEFAULT.length) };
    const chunks = Math.ceil(size / this.#init.chunk_bytes);
    return { isLarge, bytes: size + chunks * CHUNK_OVERHEAD_BYTES + MANIFEST_BYTES };
  }
}
