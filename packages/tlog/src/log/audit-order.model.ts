/**
 * Model of concurrent appends and checkpoints on the real log. The explorer decides when writes and syncs end.
 *
 * A sync makes durable the bytes that had been written to that file when it began. The files hold real bytes, because the
 * log reads them when it is opened.
 */
import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { touch } from '@ron/kernel';
import type { Build, World } from '@ron/explorer';
import type { File, FileSystem } from '@ron/log';
import type { Checkpoint } from '../note/checkpoint.ts';
import { decodeCheckpoint } from '../note/checkpoint.ts';
import { Frontier } from '../tree/frontier.ts';
import { leafHash } from '../tree/hash.ts';
import type { TransparencyLog } from './log.ts';
import type { NoteSigner } from '../note/note-key.ts';
import { parseNote } from '../note/note.ts';
import { recordBytes } from './records.ts';

/** The class under test, or a mutant of it. */
export type LogClass = Pick<typeof TransparencyLog, 'open'>;

export interface AuditOrderInit {
  /** The number of entries of each append, per appender. */
  appenders: readonly (readonly number[])[];
  /** The number of sequential checkpoints, per checkpointer. */
  checkpointers: readonly number[];
  /** Whether one sync of `entries` may fail. */
  syncMayFail?: boolean;
  closes?: boolean;
}

const ENTRY_BYTES = 1;
const RECORD_BYTES = recordBytes(ENTRY_BYTES);

class ModelDisk implements FileSystem {
  readonly #world: World;
  readonly #contents = new Map<string, Uint8Array>();
  /** Syncs of `entries` that may still fail. */
  failures_left = 0;
  /** Bytes of `entries` that survive a crash. */
  durable_bytes = 0;
  /** Whether a descriptor was used again after its sync failed. */
  misused = false;

  constructor(world: World) {
    this.#world = world;
    touch(this);
  }

  content(name: string): Uint8Array {
    return this.#contents.get(name) ?? new Uint8Array(0);
  }

  create = async (path: string): Promise<File> => {
    this.#contents.set(basename(path), new Uint8Array(0));
    return this.#file(basename(path));
  };
  open = async (path: string): Promise<File> => {
    const name = basename(path);
    if (!this.#contents.has(name)) throw Object.assign(new Error(name), { code: 'ENOENT' });
    return this.#file(name);
  };
  list = async (): Promise<string[]> => [...this.#contents.keys()];
  makeDir = async (): Promise<void> => undefined;
  rename = async (from: string, to: string): Promise<void> => {
    touch(this);
    this.#contents.set(basename(to), this.content(basename(from)));
    this.#contents.delete(basename(from));
  };
  remove = async (path: string): Promise<void> => void this.#contents.delete(basename(path));
  syncDir = async (): Promise<void> => undefined;

  #file(name: string): File {
    let hasFailed = false;
    return {
      write: async (buffers, position) => {
        this.misused ||= hasFailed;
        const bytes = Buffer.concat(buffers);
        // Hashes are written concurrently with entries; only the order of the entries matters here.
        if (name === 'entries') await this.#world.io('write entries');
        touch(this);
        const grown = new Uint8Array(Math.max(this.content(name).length, position + bytes.length));
        grown.set(this.content(name));
        grown.set(bytes, position);
        this.#contents.set(name, grown);
      },
      sync: async () => {
        if (name !== 'entries') return;
        this.misused ||= hasFailed;
        const covered = this.content(name).length;
        await this.#world.io('sync entries');
        touch(this);
        if (this.failures_left > 0 && this.#world.choose('sync', ['ok', 'fails']) === 'fails') {
          this.failures_left -= 1;
          hasFailed = true;
          throw Object.assign(new Error('sync failed'), { code: 'EIO' });
        }
        this.durable_bytes = Math.max(this.durable_bytes, covered);
      },
      read: async (into, length, position) => {
        const bytes = this.content(name).subarray(position, position + length);
        into.set(bytes);
        return bytes.length;
      },
      truncate: async (bytes) => {
        touch(this);
        this.#contents.set(name, this.content(name).slice(0, bytes));
        if (name === 'entries') this.durable_bytes = Math.min(this.durable_bytes, bytes);
      },
      size: async () => this.content(name).length,
      close: async () => undefined,
    };
  }
}

/** A slow signer. The signed entries must be durable when it runs. */
function modelSigner(world: World, vkey: string, onSign: (checkpoint: Checkpoint) => void): NoteSigner {
  return {
    vkey,
    name: vkey.split('+')[0]!,
    type: 0x01,
    sign: async (checkpoint) => {
      onSign(checkpoint);
      await world.io('sign');
      return new Uint8Array(64);
    },
  };
}

/** Appends and checkpoints, each checked against everything acknowledged so far. */
class AuditOrder {
  readonly #disk: ModelDisk;
  readonly #signal = new AbortController().signal;
  /** The acknowledged entry at each index. */
  readonly #acknowledged: number[] = [];
  #key_last = 0;
  #signed_last = 0;

  constructor(disk: ModelDisk) {
    this.#disk = disk;
  }

  async append(log: TransparencyLog, count: number): Promise<void> {
    const keys = Array.from({ length: count }, () => ++this.#key_last);
    const entries = keys.map((key) => Uint8Array.of(key));
    const { first } = await log.append(entries, this.#signal);
    touch(this.#disk);
    for (const [index, key] of keys.entries()) {
      assert.equal(this.#acknowledged[first + index], undefined, `two entries have the index ${first + index}`);
      this.#acknowledged[first + index] = key;
    }
  }

  async checkpoint(log: TransparencyLog): Promise<void> {
    const before = this.#acknowledged.length;
    const { size, root } = await log.writeCheckpoint(this.#signal);
    touch(this.#disk);
    assert.ok(size >= before, `a checkpoint over ${size} entries does not cover all ${before}`);
    const file = decodeCheckpoint(parseNote(this.#disk.content('checkpoint')).text);
    assert.ok(file.size >= size, 'a newer checkpoint was replaced by an older one');
    assert.ok(file.size >= this.#signed_last, 'checkpoints shrink');
    this.#signed_last = file.size;
    const expected = rootOf(this.#disk.content('entries'), size);
    assert.deepEqual(Buffer.from(root), expected, 'the root does not match the entries');
  }

  assertComplete(): void {
    const entries = this.#disk.content('entries');
    const bytes = this.#acknowledged.length * RECORD_BYTES;
    assert.equal(bytes, entries.length, 'the log has exactly the acknowledged entries');
    for (const [index, key] of this.#acknowledged.entries()) {
      assert.equal(entries[index * RECORD_BYTES + 2], key, `entry ${index} is not the acknowledged one`);
    }
  }
}

export function auditOrder(Log: LogClass, vkey: string, init: AuditOrderInit): Build {
  return (world) => {
    const disk = new ModelDisk(world);
    const order = new AuditOrder(disk);
    const { signal } = new AbortController();
    const signer = modelSigner(world, vkey, ({ size }) => {
      const durable = Math.floor(disk.durable_bytes / RECORD_BYTES);
      assert.ok(size <= durable, `${size} entries are signed, but only ${durable} are durable`);
    });
    const orFails = async (work: Promise<void>): Promise<void> => {
      if (init.syncMayFail !== true && init.closes !== true) return await work;
      await work.catch((error: { code?: string }) => {
        if (!['not_ready', 'closed'].includes(error.code ?? '')) throw error;
      });
    };

    world.task('open', async () => {
      const log = await Log.open({ dir: '/log', origin: 'log', signers: [signer], fs: disk, signal });
      if (init.syncMayFail === true) disk.failures_left = 1;
      init.appenders.forEach((counts, index) => {
        world.task(`appender ${index}`, async () => {
          for (const count of counts) await orFails(order.append(log, count));
        });
      });
      init.checkpointers.forEach((count, index) => {
        world.task(`checkpointer ${index}`, async () => {
          for (let done = 0; done < count; done++) await orFails(order.checkpoint(log));
        });
      });
      if (init.closes === true) world.task('closer', () => log.close());
    });
    return {
      invariant: () => assert.ok(!disk.misused, 'a descriptor whose sync failed is used again'),
      final: () => order.assertComplete(),
    };
  };
}

function rootOf(entries: Uint8Array, size: number): Buffer {
  const frontier = Frontier.empty();
  for (let index = 0; index < size; index++) {
    const at = index * RECORD_BYTES + 2;
    frontier.append(leafHash(entries.subarray(at, at + ENTRY_BYTES)), () => undefined);
  }
  return Buffer.from(frontier.root());
}
