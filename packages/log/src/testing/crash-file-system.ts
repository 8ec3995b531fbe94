/**
 * A file system in memory that can lose power.
 *
 * It separates operations from their durability. `imagesAt(n)` returns the disks that a machine could restart with if the
 * power failed after the first `n` operations: each write that no sync covers is complete, missing, or cut at a 512-byte
 * boundary, in any combination; the same for each name that no directory sync covers. A real disk does nothing worse that a
 * log could survive. Bytes that a failed sync did not write stay unwritten even if a later sync of the file succeeds, as in
 * real operating systems.
 *
 * Bound: at most `images_max` disks for each crash point; when there are more, a sample drawn by `random`.
 */
import { dirname } from 'node:path';
import type { File, FileSystem } from '../disk/file-system.ts';

const SECTOR_BYTES = 512;

type Effect =
  | { readonly kind: 'write'; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: 'truncate'; readonly bytes: number };

/** The surviving part of an effect that no sync covers: all of it (Infinity), or its first bytes (0: none). */
type Fate = number;

type Operation =
  | { readonly kind: 'create'; readonly path: string; readonly inode: number }
  | { readonly kind: 'rename'; readonly from: string; readonly to: string }
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'effect'; readonly inode: number; readonly effect: Effect }
  | { readonly kind: 'sync' | 'failed sync'; readonly inode: number }
  | { readonly kind: 'syncDir'; readonly dir: string };

export interface Faults {
  /** Called before each operation with its name and path. The caller gets the error that it throws. */
  before?(operation: string, path: string): void;
}

function applyEffect(content: Uint8Array, effect: Effect, fate: Fate = Infinity): Uint8Array {
  if (effect.kind === 'truncate') {
    if (fate === 0) return content;
    const cut = new Uint8Array(effect.bytes);
    cut.set(content.subarray(0, effect.bytes));
    return cut;
  }
  const bytes = effect.bytes.subarray(0, Math.min(fate, effect.bytes.length));
  if (bytes.length === 0) return content;
  const grown = new Uint8Array(Math.max(content.length, effect.at + bytes.length));
  grown.set(content);
  grown.set(bytes, effect.at);
  return grown;
}

function errno(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

export class CrashFileSystem implements FileSystem {
  readonly #names = new Map<string, number>();
  readonly #contents = new Map<number, Uint8Array>();
  readonly #operations: Operation[] = [];
  readonly #faults: Faults;
  #inode_last = 0;

  constructor(files: ReadonlyMap<string, Uint8Array> = new Map(), faults: Faults = {}) {
    this.#faults = faults;
    for (const [path, bytes] of files) {
      this.#names.set(path, ++this.#inode_last);
      this.#contents.set(this.#inode_last, bytes);
    }
    this.#start = { names: new Map(this.#names), contents: new Map(this.#contents) };
  }

  readonly #start: { names: Map<string, number>; contents: Map<number, Uint8Array> };

  /** Operations so far: a crash point is a number from 0 to this. */
  get operations(): number {
    return this.#operations.length;
  }

  /** The contents without a crash. */
  files(): Map<string, Uint8Array> {
    return new Map([...this.#names].map(([path, inode]) => [path, this.#contents.get(inode) ?? new Uint8Array(0)]));
  }

  /** Changes bytes without an operation, as bit rot does. */
  damage(path: string, change: (bytes: Uint8Array) => Uint8Array): void {
    const inode = this.#inodeAt(path);
    this.#contents.set(inode, change(Uint8Array.from(this.#contents.get(inode) ?? [])));
  }

  create(path: string): Promise<File> {
    return this.#do('create', path, () => {
      if (this.#names.has(path)) throw errno('EEXIST', path);
      const inode = ++this.#inode_last;
      this.#names.set(path, inode);
      this.#contents.set(inode, new Uint8Array(0));
      this.#operations.push({ kind: 'create', path, inode });
      return this.#file(inode, path);
    });
  }

  open(path: string, access: 'read' | 'write'): Promise<File> {
    const operation = access === 'read' ? 'open' : 'open for writing';
    return this.#do(operation, path, () => this.#file(this.#inodeAt(path), path));
  }

  list(dir: string): Promise<string[]> {
    return this.#do('list', dir, () =>
      [...this.#names.keys()].filter((path) => dirname(path) === dir).map((path) => path.slice(dir.length + 1)),
    );
  }

  makeDir(dir: string): Promise<void> {
    // Directories are there from the start: a log makes its own once, before anything can be lost.
    return this.#do('makeDir', dir, () => undefined);
  }

  rename(from: string, to: string): Promise<void> {
    return this.#do('rename', from, () => {
      this.#names.set(to, this.#inodeAt(from));
      this.#names.delete(from);
      this.#operations.push({ kind: 'rename', from, to });
    });
  }

  remove(path: string): Promise<void> {
    return this.#do('remove', path, () => {
      this.#inodeAt(path);
      this.#names.delete(path);
      this.#operations.push({ kind: 'remove', path });
    });
  }

  syncDir(dir: string): Promise<void> {
    return this.#do('syncDir', dir, () => void this.#operations.push({ kind: 'syncDir', dir }));
  }

  /** The disks that a machine could restart with after the first `operations` operations. */
  *imagesAt(operations: number, images_max: number, random: () => number): Generator<Map<string, Uint8Array>> {
    const history = this.#operations.slice(0, operations);
    const open = unsynced(history);
    const fates = open.map((index) => fatesOf(history[index] as Operation));
    const count = fates.reduce((product, each) => product * each.length, 1);
    if (count <= images_max) {
      for (let image = 0; image < count; image++) yield this.#image(history, open, digitsOf(image, fates));
      return;
    }
    for (let image = 0; image < images_max; image++) {
      yield this.#image(
        history,
        open,
        fates.map((each) => each[Math.floor(random() * each.length)] as Fate),
      );
    }
  }

  #image(history: readonly Operation[], open: readonly number[], fates: readonly Fate[]): Map<string, Uint8Array> {
    const fateOf = new Map(open.map((index, at) => [index, fates[at] as Fate]));
    const names = new Map(this.#start.names);
    const contents = new Map(this.#start.contents);
    for (const [index, operation] of history.entries()) {
      const fate = fateOf.get(index) ?? Infinity;
      if (operation.kind === 'effect') {
        const before = contents.get(operation.inode) ?? new Uint8Array(0);
        contents.set(operation.inode, applyEffect(before, operation.effect, fate));
      } else if (fate > 0) {
        applyName(names, operation);
      }
    }
    return new Map([...names].map(([path, inode]) => [path, contents.get(inode) ?? new Uint8Array(0)]));
  }

  #file(inode: number, path: string): File {
    const content = (): Uint8Array => this.#contents.get(inode) ?? new Uint8Array(0);
    const apply = (effect: Effect): void => {
      this.#contents.set(inode, applyEffect(content(), effect));
      this.#operations.push({ kind: 'effect', inode, effect });
    };
    return {
      write: (buffers, at) =>
        this.#do('write', path, () => apply({ kind: 'write', at, bytes: Uint8Array.from(Buffer.concat(buffers)) })),
      read: (into, length, position) =>
        this.#do('read', path, () => {
          const bytes = content().subarray(position, position + length);
          into.set(bytes);
          return bytes.length;
        }),
      sync: () =>
        this.#do('sync', path, () => void this.#operations.push({ kind: 'sync', inode })).catch((error: unknown) => {
          this.#operations.push({ kind: 'failed sync', inode });
          throw error;
        }),
      truncate: (bytes) => this.#do('truncate', path, () => apply({ kind: 'truncate', bytes })),
      discardStart: (bytes) =>
        this.#do('discardStart', path, () => apply({ kind: 'write', at: 0, bytes: new Uint8Array(bytes) })),
      size: () => this.#do('size', path, () => content().length),
      close: () => this.#do('close', path, () => undefined),
    };
  }

  #inodeAt(path: string): number {
    const inode = this.#names.get(path);
    if (inode === undefined) throw errno('ENOENT', path);
    return inode;
  }

  async #do<T>(operation: string, path: string, act: () => T): Promise<T> {
    this.#faults.before?.(operation, path);
    return act();
  }
}

/** The operations that the power failure may undo, because no later operation made them durable. */
function unsynced(history: readonly Operation[]): number[] {
  return [...history.keys()].filter((index) => !isDurable(history[index] as Operation, history.slice(index + 1)));
}

function isDurable(operation: Operation, later: readonly Operation[]): boolean {
  if (operation.kind === 'effect') return firstSyncOf(operation.inode, later)?.kind === 'sync';
  if (operation.kind === 'rename') return isNamed(dirname(operation.to), later);
  if (operation.kind === 'create' || operation.kind === 'remove') return isNamed(dirname(operation.path), later);
  return true;
}

const isNamed = (dir: string, later: readonly Operation[]): boolean =>
  later.some((next) => next.kind === 'syncDir' && next.dir === dir);

const firstSyncOf = (inode: number, later: readonly Operation[]): Operation | undefined =>
  later.find((next) => (next.kind === 'sync' || next.kind === 'failed sync') && next.inode === inode);

function fatesOf(operation: Operation): Fate[] {
  if (operation.kind !== 'effect' || operation.effect.kind !== 'write') return [0, Infinity];
  const { at, bytes } = operation.effect;
  const fates: Fate[] = [0, Infinity];
  // Up to three torn lengths: after the first sector, in the middle, before the last.
  const first = SECTOR_BYTES - (at % SECTOR_BYTES);
  for (const torn of [first, Math.floor(bytes.length / 2), bytes.length - 1]) {
    const border = first + Math.floor((torn - first) / SECTOR_BYTES) * SECTOR_BYTES;
    if (border > 0 && border < bytes.length && !fates.includes(border)) fates.push(border);
  }
  return fates;
}

function digitsOf(image: number, fates: readonly (readonly Fate[])[]): Fate[] {
  let rest = image;
  return fates.map((each) => {
    const digit = each[rest % each.length] as Fate;
    rest = Math.floor(rest / each.length);
    return digit;
  });
}

function applyName(names: Map<string, number>, operation: Operation): void {
  if (operation.kind === 'create') names.set(operation.path, operation.inode);
  if (operation.kind === 'remove') names.delete(operation.path);
  if (operation.kind !== 'rename') return;
  const inode = names.get(operation.from);
  if (inode === undefined) return;
  names.set(operation.to, inode);
  names.delete(operation.from);
}
