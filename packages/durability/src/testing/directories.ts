/** Sets of volumes in directories below a temporary one, for tests. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LocalVolume, type LocalVolumeInit } from '@ron/cas';
import { VolumeSet, type VolumeSetInit } from '../set/volume-set.ts';

const { signal } = new AbortController();

export class Directories implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), 'ron-set-'));

  dir(name: string): string {
    return join(this.path, name);
  }

  volume(name: string, init: Partial<LocalVolumeInit> = {}): Promise<LocalVolume> {
    return LocalVolume.open({ dir: this.dir(name), name, signal, ...init });
  }

  /** A set of the directories with these names, which are made when they are not there. */
  async open(names: readonly string[], init: Partial<VolumeSetInit> = {}): Promise<VolumeSet> {
    const volumes = await Promise.all(names.map((name) => this.volume(name)));
    return await VolumeSet.open({ members: volumes.map((volume) => ({ volume })), signal, ...init });
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
