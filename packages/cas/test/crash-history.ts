/**
 * Runs a history of operations on the engine and verifies it after every crash point.
 *
 * Contract: for each crash point and each disk that a power failure could leave, acknowledged changes are present, visible
 * objects are intact, and the engine accepts new work. Bound: `images_max` disks for each crash point.
 */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import { TokenBucket } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { formatAddress, type Address } from '@ron/proto';
import { Compactor } from '../src/compaction/compactor.ts';
import { LocalVolume } from '../src/volume/local-volume.ts';
import { ObjectStore } from '../src/objects/object-store.ts';
import { Uploads } from '../src/uploads/uploads.ts';
import { RecordType } from '../src/volume/record-types.ts';

export const { signal } = new AbortController();
const DIR = '/v';
export const CHUNK = 1024;
const SEGMENT_BYTES = 8192;
const IMAGES_MAX = 24;

export interface Engine {
  LocalVolume: Pick<typeof LocalVolume, 'open'>;
  ObjectStore: typeof ObjectStore;
  Compactor: typeof Compactor;
  Uploads: Pick<typeof Uploads, 'open'>;
}
export const ENGINE: Engine = { LocalVolume, ObjectStore, Compactor, Uploads };

const bytesOf = (size: number, seed: number): Buffer => Buffer.alloc(size, `${seed}/${size} `);

async function* bodyOf(bytes: Buffer): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700);
}

/** Runs other work between the call of a sync and its effect. */
function withSlowSyncs(disk: CrashFileSystem, onSync: () => void): FileSystem {
  const slowed = async (opened: Promise<File>): Promise<File> => {
    const file = await opened;
    const sync = async (): Promise<void> => {
      onSync();
      await nextTurn();
      await file.sync();
    };
    return { ...file, sync };
  };
  return {
    create: (path) => slowed(disk.create(path)),
    open: (path, access) => slowed(disk.open(path, access)),
    list: (dir) => disk.list(dir),
    makeDir: (dir) => disk.makeDir(dir),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    syncDir: (dir) => disk.syncDir(dir),
  };
}

export const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** A change of the engine, with the operations at which it began and was acknowledged. */
interface Change {
  /** The changed thing: an object, a pin, an upload. */
  readonly what: string;
  readonly value: string | number | boolean;
  /** The number of disk operations when it began, and when it was acknowledged. */
  readonly begun: number;
  acknowledged: number;
}

/** Runs operations on an engine and records their acknowledgements. */
export class History {
  readonly disk: CrashFileSystem;
  readonly changes: Change[] = [];
  readonly bodies = new Map<Address, Buffer>();
  readonly #engine: Engine;
  #store: ObjectStore | undefined;
  #uploads: Uploads | undefined;
  #volume: LocalVolume | undefined;
  #onSync: () => void = () => undefined;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.disk = new CrashFileSystem();
  }

  async open(): Promise<void> {
    const engine = this.#engine;
    const fs = withSlowSyncs(this.disk, () => this.#onSync());
    const init = { dir: DIR, fs, segment_bytes: SEGMENT_BYTES, flush_after_ms: Infinity, signal };
    this.#volume = await engine.LocalVolume.open(init);
    this.#store = new engine.ObjectStore({ volume: this.#volume, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });
    this.#uploads = await engine.Uploads.open({ store: this.#store, dir: DIR, fs });
  }

  async close(): Promise<void> {
    await this.#uploads?.close();
    await this.#volume?.close();
  }

  async put(size: number, seed: number): Promise<void> {
    const bytes = bytesOf(size, seed);
    const address = formatAddress(blake3(bytes));
    this.bodies.set(address, bytes);
    await this.#change(`object ${address}`, true, async () => {
      const writer = this.#store!.writer();
      await writer.write(bytes, signal);
      await writer.finish({}, signal);
    });
  }

  async remove(size: number, seed: number): Promise<void> {
    const address = formatAddress(blake3(bytesOf(size, seed)));
    if (!this.#store!.has(address)) return;
    await this.#change(`object ${address}`, false, () => this.#store!.remove(address, signal));
  }

  async pin(size: number, seed: number, isPinned: boolean): Promise<void> {
    const address = formatAddress(blake3(bytesOf(size, seed)));
    if (!this.#store!.has(address)) return;
    await this.#change(`pin ${address}`, isPinned, async () => {
      await (isPinned ? this.#store!.pin(address, signal) : this.#store!.unpin(address, signal));
    });
  }

  /** Puts an object with a note that names it, in one step. */
  async putNoted(size: number, seed: number): Promise<void> {
    const bytes = bytesOf(size, seed);
    const id = blake3(bytes);
    const address = formatAddress(id);
    this.bodies.set(address, bytes);
    const note = { type: RecordType.note, id, payload: Buffer.from(address) };
    const put = async (): Promise<void> => void (await this.#store!.put(bytes, { with: [note] }, signal));
    await this.#change(`object ${address}`, true, () => this.#change(`note ${address}`, true, put));
  }

  /** Removes an object and its note, in one step. */
  async removeNoted(size: number, seed: number): Promise<void> {
    const id = blake3(bytesOf(size, seed));
    const address = formatAddress(id);
    const records = [RecordType.unnote, RecordType.remove].map((type) => ({ type, id, payload: new Uint8Array(0) }));
    const remove = (): Promise<void> => this.#volume!.put(records, signal);
    await this.#change(`object ${address}`, false, () => this.#change(`note ${address}`, false, remove));
  }

  /** An upload in pieces; it stays unfinished if they are shorter than the size. */
  async upload(size: number, seed: number, pieces: readonly number[]): Promise<void> {
    const uploads = this.#uploads!;
    const bytes = bytesOf(size, seed);
    const address = formatAddress(blake3(bytes));
    this.bodies.set(address, bytes);
    const begun = this.disk.operations;
    const { id } = await uploads.create({ size });
    this.changes.push({ what: `upload ${id}`, value: 0, begun, acknowledged: this.disk.operations });
    let offset = 0;
    for (const piece of pieces.filter((each) => each > 0)) {
      const end = Math.min(offset + piece, size);
      const append = async (): Promise<void> => {
        const body = bodyOf(bytes.subarray(offset, end));
        if (offset < end) ({ offset } = await uploads.append({ id, offset, body, signal }));
      };
      const isLast = end === size;
      await this.#change(`upload ${id}`, end, () =>
        isLast ? this.#change(`object ${address}`, true, append) : append(),
      );
    }
  }

  async compact(): Promise<void> {
    const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
    const init = { store: this.#store!, uploads: this.#uploads!, bucket, live_ratio: 1, seal_bytes_min: 1 };
    // A listing flushes the index, which may happen at any time, even while records are being moved.
    this.#onSync = () => void this.#volume!.inventory('object', undefined, 1);
    await new this.#engine.Compactor(init).run(signal);
    this.#onSync = () => undefined;
  }

  async #change(what: string, value: Change['value'], work: () => Promise<void>): Promise<void> {
    const change = { what, value, begun: this.disk.operations, acknowledged: Infinity };
    this.changes.push(change);
    await work();
    change.acknowledged = this.disk.operations;
  }

  /** The allowed values after a crash: the last acknowledged one, or any that was begun after it. */
  allowed(what: string, operations: number): Change['value'][] {
    const mine = this.changes.filter((change) => change.what === what);
    const last = mine.findLastIndex((change) => change.acknowledged <= operations);
    const values = mine.slice(last + 1).filter((change) => change.begun < operations);
    return [mine[last]?.value ?? false, ...values.map((change) => change.value)];
  }
}

/** Opens the disk after a crash and verifies it against the acknowledged changes. */
async function check(history: History, operations: number, image: Map<string, Uint8Array>): Promise<void> {
  const disk = new CrashFileSystem(image);
  const onRebuild = (why: string): never => assert.fail(`the index was rebuilt: ${why}`);
  const onDamage = (): never => assert.fail('a record counts as damaged');
  const init = { dir: DIR, fs: disk, segment_bytes: SEGMENT_BYTES, flush_after_ms: Infinity, signal, onDamage };
  const volume = await LocalVolume.open({ ...init, onRebuild });
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });
  const uploads = await Uploads.open({ store, dir: DIR, fs: disk });
  const hold = (what: string, value: Change['value']): void => {
    const allowed = history.allowed(what, operations);
    assert.ok(allowed.includes(value), `${what}: ${value} was found, expected was ${allowed.join(' or ')}`);
  };
  for (const [address, bytes] of history.bodies) {
    hold(`object ${address}`, store.has(address));
    if (store.has(address)) assert.deepEqual(await read(store, address), bytes, 'a visible object is damaged');
    hold(`pin ${address}`, store.isPinned(address));
    const isNoted = volume.has('note', blake3(bytes));
    hold(`note ${address}`, isNoted);
    const isPair = history.changes.some(({ what }) => what === `note ${address}`);
    if (isPair) assert.equal(store.has(address), isNoted, 'of an object and its note only one survived');
  }
  for (const { what } of history.changes) {
    const id = /^upload (.*)$/.exec(what)?.[1];
    const status = id === undefined ? undefined : uploads.status(id);
    if (status !== undefined) hold(what, status.offset);
    else if (id !== undefined) hold(what, false);
  }
  await checkNewWork(store, uploads);
  await uploads.close();
  await volume.close();
}

async function read(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = (await store.open(address, signal))!;
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** The engine accepts new work: every indexed content is readable, and an upload succeeds. */
async function checkNewWork(store: ObjectStore, uploads: Uploads): Promise<void> {
  // No index entry leads to a removed segment.
  const contents = await store.volume.inventory('content', undefined, 1000);
  for (const { id } of contents) assert.ok(await store.volume.get('content', id, signal));
  const { id } = await uploads.create({ size: 1500 });
  const { address } = await uploads.append({ id, offset: 0, body: bodyOf(bytesOf(1500, 99)), signal });
  assert.deepEqual(await read(store, address!), bytesOf(1500, 99));
}

export type Step = (history: History) => Promise<void>;

/** Returns the number of disks that were checked. */
export async function checkEveryCrash(
  steps: readonly Step[],
  engine = ENGINE,
  images_max = IMAGES_MAX,
): Promise<number> {
  const history = new History(engine);
  await history.open();
  for (const step of steps) await step(history);
  await history.close();
  const random = randomFrom(7);
  let images = 0;
  for (let point = 0; point <= history.disk.operations; point++) {
    for (const image of history.disk.imagesAt(point, images_max, random)) {
      images += 1;
      try {
        await check(history, point, image);
        // Again without the index: it is rebuilt from the log.
        await check(history, point, new Map([...image].filter(([path]) => !path.startsWith(`${DIR}/index`))));
      } catch (error) {
        throw new Error(`after operation ${point}: ${error instanceof Error ? error.message : String(error)}`, {
          cause: error,
        });
      }
    }
  }
  return images;
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

export const OBJECTS: readonly Step[] = [
  (history) => history.put(100, 1),
  (history) => history.put(2 * CHUNK + 10, 2),
  (history) => Promise.all([history.put(300, 3), history.put(300, 3), history.put(CHUNK + 5, 4)]).then(() => undefined),
  (history) => history.pin(100, 1, true),
  (history) => history.remove(2 * CHUNK + 10, 2),
  (history) => history.put(2 * CHUNK + 10, 2),
  (history) => history.pin(100, 1, false),
];
export const UPLOADS: readonly Step[] = [
  (history) => history.upload(3000, 5, [900, 1200, 900]),
  (history) => history.upload(2500, 6, [400, 400, 1600]),
];
export const NOTES: readonly Step[] = [
  (history) => history.putNoted(100, 1),
  (history) => history.putNoted(2 * CHUNK + 10, 2),
  (history) => history.removeNoted(100, 1),
  (history) => history.putNoted(100, 1),
  (history) => history.removeNoted(2 * CHUNK + 10, 2),
  (history) => history.compact(),
  (history) => history.removeNoted(100, 1),
  (history) => history.compact(),
  (history) => history.putNoted(100, 1),
];
export const COMPACTION: readonly Step[] = [
  (history) => history.put(3 * CHUNK + 1, 1),
  (history) => history.put(200, 2),
  (history) => history.pin(200, 2, true),
  (history) => history.put(3 * CHUNK + 1, 3),
  (history) => history.remove(3 * CHUNK + 1, 1),
  (history) => history.upload(4000, 4, [2500]),
  (history) => history.compact(),
  (history) => history.put(150, 5),
  (history) => history.remove(200, 2),
  (history) => history.compact(),
];
