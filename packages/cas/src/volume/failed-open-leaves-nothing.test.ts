/** An open that fails leaves no file open and no lock held, so a caller can retry it without limit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import type { File } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { LocalVolume } from './local-volume.ts';
import { RecordType } from './record-types.ts';

const { signal } = new AbortController();

/** Counts open files and held locks. The call with the number `fail_at` fails; `close` never does. */
class CountingFiles extends CrashFileSystem {
  readonly held = new Map<string, number>();
  calls: string[];

  constructor(files: ReadonlyMap<string, Uint8Array>, fail_at: number) {
    const calls: string[] = [];
    super(files, {
      before: (operation, path) => {
        if (operation === 'close') return;
        calls.push(`${operation} ${path}`);
        if (calls.length - 1 === fail_at) throw Object.assign(new Error('EIO'), { code: 'EIO' });
      },
    });
    this.calls = calls;
  }

  override async create(path: string): Promise<File> {
    return this.#counted(path, await super.create(path));
  }

  override async open(path: string, access: 'read' | 'write'): Promise<File> {
    return this.#counted(path, await super.open(path, access));
  }

  lock(path: string): Disposable {
    return { [Symbol.dispose]: this.#hold(path) };
  }

  #counted(path: string, file: File): File {
    const release = this.#hold(path);
    const close = async (): Promise<void> => {
      release();
      await file.close();
    };
    return { ...file, close };
  }

  #hold(path: string): () => void {
    this.held.set(path, (this.held.get(path) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = this.held.get(path)! - 1;
      if (left > 0) this.held.set(path, left);
      else this.held.delete(path);
    };
  }
}

const openOn = (fs: CrashFileSystem): Promise<LocalVolume> =>
  LocalVolume.open({ dir: '/v', fs, segment_bytes: 4096, flush_after_ms: Infinity, signal });

/** A volume of several segments and runs after a power cut: records wait for their replay. */
async function filledFiles(): Promise<Map<string, Uint8Array>> {
  const fs = new CrashFileSystem();
  const volume = await openOn(fs);
  for (let seed = 0; seed < 8; seed++) {
    const payload = Buffer.alloc(1000, `content ${seed} `);
    await volume.put([{ type: RecordType.object, id: blake3(payload), payload }], signal);
    if (seed % 3 === 0) await volume.index.flush(() => volume.log.durable);
  }
  const files = fs.files();
  await volume.close();
  return files;
}

const without = (files: ReadonlyMap<string, Uint8Array>, part: string): Map<string, Uint8Array> =>
  new Map([...files].filter(([path]) => !path.includes(part)));

const filled = await filledFiles();
const VOLUMES: Record<string, ReadonlyMap<string, Uint8Array>> = {
  'an empty directory': new Map(),
  'a volume after a power cut': filled,
  'a volume that lost its index': without(filled, '/index'),
  'a volume that lost its superblock': without(filled, '/superblock'),
};

for (const [name, files] of Object.entries(VOLUMES)) {
  test(name, async () => {
    let failures = 0;
    for (let fail_at = 0; ; fail_at++) {
      const fs = new CountingFiles(files, fail_at);
      try {
        await (await openOn(fs)).close();
      } catch {
        failures += 1;
      }
      // [storage I-11]
      assert.deepEqual([...fs.held], [], `after a failed ${fs.calls[fail_at]}`);
      if (fs.calls.length <= fail_at) break;
    }
    assert.ok(failures > 0);
  });
}
