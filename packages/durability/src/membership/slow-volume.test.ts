/** One volume of a set syncs slowly: writes are acknowledged without it, and with as many durable copies as were asked for. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { ObjectStore } from '@ron/cas';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { addressBytes } from '@ron/proto';
import { Directories } from '../testing/directories.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();
const CHUNK_BYTES = 65_536;
const LAG_MS = 500;

/** A disk whose syncs wait while it is held. */
class SlowDisk {
  #gate: PromiseWithResolvers<void> | undefined;
  readonly fs: FileSystem = {
    ...realFileSystem,
    create: (path) => this.#slowed(realFileSystem.create(path)),
    open: (path, access) => this.#slowed(realFileSystem.open(path, access)),
  };

  hold(): void {
    this.#gate = Promise.withResolvers<void>();
  }

  release(): void {
    this.#gate?.resolve();
    this.#gate = undefined;
  }

  async #slowed(opened: Promise<File>): Promise<File> {
    const file = await opened;
    const sync = async (): Promise<void> => {
      await this.#gate?.promise;
      await file.sync();
    };
    return new Proxy(file, {
      get: (target, name) => {
        if (name === 'sync') return sync;
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }
}

interface Opened {
  readonly set: VolumeSet;
  readonly store: ObjectStore;
  readonly disks: readonly SlowDisk[];
}

async function open(directories: Directories, count: number): Promise<Opened> {
  const disks = Array.from({ length: count }, () => new SlowDisk());
  const volumes = await Promise.all(disks.map(({ fs }, index) => directories.volume(`v${index}`, { fs })));
  const members = volumes.map((volume) => ({ volume }));
  const set = await VolumeSet.open({ members, replication_factor: 2, write_min: 2, lag_ms: LAG_MS, signal });
  return { set, store: new ObjectStore({ volume: set, cache_bytes: 0, chunk_bytes: CHUNK_BYTES }), disks };
}

/** Stores an object of several chunks. Returns the id of its manifest. */
async function write(store: ObjectStore, chunks = 12): Promise<Uint8Array> {
  const writer = store.writer();
  await writer.write(randomBytes(chunks * CHUNK_BYTES), signal);
  return addressBytes((await writer.finish({}, signal)).address);
}

/** Each content has two durable copies, those on `slow` not counted. */
async function assertCopies({ set }: Opened, slow: number): Promise<void> {
  const others = set.members.filter((_, index) => index !== slow);
  const ids = new Set<string>();
  for (const { volume } of others) {
    for (const { id } of await volume.inventory('content', undefined, 1000)) ids.add(Buffer.from(id).toString('hex'));
  }
  assert.ok(ids.size >= 13, `${ids.size} contents`);
  for (const id of ids) {
    const copies = others.filter((member) => member.holdsDurably('content', Buffer.from(id, 'hex'))).length;
    assert.ok(copies >= 2, `${copies} copies`);
  }
}

test('an object is acknowledged while a volume does not sync, with copies on the others', async () => {
  using directories = new Directories();
  const opened = await open(directories, 3);
  await using set = opened.set;
  const disk = opened.disks[1]!;
  disk.hold();
  try {
    const began_ms = performance.now();
    const id = await write(opened.store);
    assert.ok(performance.now() - began_ms < 3000, 'it does not wait for the disk');
    assert.ok(set.isDurable('object', id));
    await assertCopies(opened, 1);
    // From now on the volume counts as slow.
    assert.ok(set.members[1]!.isSlowToWrite);
    const { used_bytes } = set.members[1]!.volume.stats();
    await write(opened.store);
    assert.equal(set.members[1]!.volume.stats().used_bytes, used_bytes, 'the others are asked first');
    await assertCopies(opened, 1);
  } finally {
    disk.release();
  }
});

test('a sync waits for contents that only slow volumes have', async () => {
  using directories = new Directories();
  const opened = await open(directories, 4);
  await using set = opened.set;
  for (const disk of opened.disks.slice(0, 2)) disk.hold();
  let isDone = false;
  const written = write(opened.store, 80).then((id) => {
    isDone = true;
    return id;
  });
  // One content of six lies on the two slow volumes alone; of 81 there is none with a probability below 1e-6.
  await new Promise((resolve) => void setTimeout(resolve, 4 * LAG_MS));
  const isEarly = isDone;
  for (const disk of opened.disks) disk.release();
  const id = await written;
  assert.ok(!isEarly, 'nothing is acknowledged that cannot be read');
  assert.ok(set.isDurable('object', id));
});

test('a write waits for a slow volume if no other is left', async () => {
  using directories = new Directories();
  const opened = await open(directories, 2);
  await using set = opened.set;
  opened.disks[1]!.hold();
  const written = write(opened.store);
  await new Promise((resolve) => void setTimeout(resolve, 2 * LAG_MS));
  opened.disks[1]!.release();
  assert.ok(set.isDurable('object', await written));
  assert.equal(set.copiesOf('object', await written), 2);
});
