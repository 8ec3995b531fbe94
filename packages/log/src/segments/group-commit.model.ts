/**
 * A model of group commit on the real log. The explorer decides when writes and syncs end, and whether they fail.
 *
 * A sync makes durable exactly the writes that had ended when it began.
 */
import assert from 'node:assert/strict';
import { RonError } from '@ron/kernel';
import type { Build, World } from '@ron/explorer';
import type { File, FileSystem } from '../disk/file-system.ts';
import { HEADER_BYTES } from './record.ts';
import type { SegmentLog } from './segment-log.ts';

/** The class under test; a mutant of it in the tests of the model. */
export type LogClass = Pick<typeof SegmentLog, 'open'>;

export interface GroupCommitModelInit {
  /** How many appends each appender makes, one after another. */
  appenders: readonly number[];
  /** Whether a sync may fail. */
  syncMayFail: boolean;
  /** Whether the log is closed while appends are under way. */
  closes: boolean;
}

class ModelDisk implements FileSystem {
  readonly written = new Set<number>();
  readonly durable = new Set<number>();
  /** A descriptor whose sync failed was used again. */
  misused = false;
  readonly #world: World;
  readonly #syncMayFail: boolean;
  #failures_left = 1;

  constructor(world: World, syncMayFail: boolean) {
    this.#world = world;
    this.#syncMayFail = syncMayFail;
  }

  create = async (): Promise<File> => this.#file();
  open = async (): Promise<File> => this.#file();
  list = async (): Promise<string[]> => [];
  makeDir = async (): Promise<void> => undefined;
  rename = async (): Promise<void> => undefined;
  remove = async (): Promise<void> => undefined;
  syncDir = async (): Promise<void> => undefined;

  #file(): File {
    const mine = new Set<number>();
    let hasFailed = false;
    const use = (): void => {
      this.misused ||= hasFailed;
    };
    return {
      write: async (buffers) => {
        use();
        await this.#world.io('write');
        for (const key of keysIn(Buffer.concat(buffers))) {
          mine.add(key);
          this.written.add(key);
        }
      },
      sync: async () => {
        use();
        const covered = [...mine];
        await this.#world.io('sync');
        if (this.#syncMayFail && this.#failures_left > 0 && this.#world.choose('sync', ['ok', 'fails']) === 'fails') {
          this.#failures_left -= 1;
          hasFailed = true;
          throw Object.assign(new Error('sync failed'), { code: 'EIO' });
        }
        for (const key of covered) this.durable.add(key);
      },
      read: async () => 0,
      truncate: async () => undefined,
      size: async () => 0,
      close: async () => undefined,
    };
  }
}

/** Where the id lies in a record's header. */
const ID_AT = 20;

function keysIn(bytes: Buffer): number[] {
  const keys: number[] = [];
  for (let at = 0; at < bytes.length; at += HEADER_BYTES) {
    if (bytes.toString('latin1', at, at + 4) === 'RON1') keys.push(bytes[at + ID_AT] as number);
  }
  return keys;
}

export function groupCommit(Log: LogClass, init: GroupCommitModelInit): Build {
  return (world) => {
    const disk = new ModelDisk(world, init.syncMayFail);
    const { signal } = new AbortController();
    const answered = new Map<number, 'ok' | 'failed'>();
    const answer = (key: number, outcome: 'ok' | 'failed'): void => {
      assert.ok(!answered.has(key), `append ${key} was answered twice`);
      if (outcome === 'ok') assert.ok(disk.durable.has(key), `append ${key} was acknowledged and is not durable`);
      answered.set(key, outcome);
    };
    let keys = 0;
    world.task('open', async () => {
      const log = await Log.open({ dir: '/log', fs: disk, batch_bytes_max: 256, signal });
      init.appenders.forEach((appends, index) => {
        world.task(`appender ${index}`, async () => {
          for (let count = 0; count < appends; count++) {
            const key = ++keys;
            const record = { type: 1, id: new Uint8Array(32).fill(key), payload: new Uint8Array([key]) };
            await log.append([record], signal).then(
              () => answer(key, 'ok'),
              (error: unknown) => {
                assert.ok(error instanceof RonError, String(error));
                answer(key, 'failed');
              },
            );
          }
        });
      });
      if (init.closes) world.task('closer', () => log.close());
    });
    return {
      state: () => JSON.stringify([[...disk.written], [...disk.durable], [...answered], keys]),
      invariant: () => assert.ok(!disk.misused, 'a descriptor whose sync failed is used again'),
      final: () => {
        assert.equal(answered.size, keys, 'every append is answered');
        if (!init.syncMayFail && !init.closes) {
          assert.ok(
            [...answered.values()].every((outcome) => outcome === 'ok'),
            'an append failed on a good disk',
          );
        }
      },
    };
  };
}
