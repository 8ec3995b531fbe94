/** A directory that is configured, and the volume in it: how it is opened, and how it is told from another. */
import { join } from 'node:path';
import { LocalVolume, type LocalVolumeInit, type Volume } from '@ron/cas';
import type { MemberInit, Probe } from '@ron/durability';
import { assert, isRonError } from '@ron/kernel';
import type { StorageConfig } from '../config.ts';
import { parseDataDir, type DataDir } from './data-dirs.ts';
import { probeOf, roomOf } from './directory-looks.ts';
import { fileSystemOf } from './disk-share.ts';
import type { EngineEvent } from './engine.ts';
import { VolumeWatch } from './volume-watch.ts';

export interface VolumesInit {
  readonly config: StorageConfig;
  readonly publish: (event: EngineEvent) => void;
  /** The file system below a directory. Default: the real one. */
  readonly fs?: LocalVolumeInit['fs'];
  readonly signal: AbortSignal;
}

/** A directory, configured or not, and the state of its volume. */
export class Slot {
  spec: DataDir;
  /** The volume that is open there, or was; of a directory that was never open, the one that was last seen there. */
  id: string | undefined;
  watch: VolumeWatch | undefined;
  /** Tells whether it is still what was opened. */
  probe: Probe | undefined;
  /** Why it is not open. */
  lost: string | undefined;
  /** It is being opened, which may take any time: it is not opened twice. */
  opening: Promise<void> | undefined;
  /** The operator gave it up: it does not come back by itself. */
  isGivenUp = false;
  /** No longer configured: let go when it is empty. */
  isLeaving: boolean;
  /** It is being removed: it is not opened any more. */
  isGoing = false;

  constructor(spec: DataDir, isLeaving: boolean) {
    this.spec = spec;
    this.isLeaving = isLeaving;
  }

  get name(): string {
    return this.spec.dir;
  }

  /** It stands for a volume whose directory is not known. */
  get isPlaceless(): boolean {
    return this.spec.dir === this.id;
  }

  giveUp(): void {
    this.isGivenUp = true;
    this.lost = `${this.name}: it was given up`;
  }
}

const GIB = 1024 ** 3;
/** Memory lies in no directory. */
export const NOWHERE: DataDir = { dir: '', domain: '', weight: 1, isDraining: false };

export const slotOf = (spec: DataDir, { isLeaving = false } = {}): Slot => new Slot(spec, isLeaving);

/** For a volume of the roster that is not where it was last seen. */
export function awaySlot(id: string, dir: string | undefined): Slot {
  const slot = new Slot({ dir: id, domain: id, weight: undefined, isDraining: false }, true);
  slot.id = id;
  slot.lost = `the volume ${id}${dir === undefined ? '' : `, last seen in ${dir},`} is away`;
  return slot;
}

export function dirsOf(config: StorageConfig): DataDir[] {
  return config.data_dirs.map((item) => {
    const spec = parseDataDir(item);
    assert(spec !== undefined, 'the configuration was checked');
    return spec;
  });
}

export async function memberOf(slot: Slot, volume: Volume): Promise<MemberInit> {
  const { spec } = slot;
  slot.id = volume.id;
  slot.watch = new VolumeWatch(volume, spec.dir === '' ? undefined : spec.dir);
  const life = spec.isDraining || slot.isLeaving ? 'draining' : 'active';
  return { volume, weight: await weightOf(spec), life };
}

export const weightOf = async (spec: DataDir): Promise<number> => spec.weight ?? (await size_gib(spec.dir));

/** One that does not tell counts as a small one. */
async function size_gib(dir: string): Promise<number> {
  const { total_bytes = GIB } = (await roomOf(dir)) ?? {};
  return Math.max(0.001, total_bytes / GIB);
}

/**
 * Undefined when it cannot be opened; then the slot says why. At the start that is an error for a directory that is alone,
 * and in any case when another process uses it: then the configuration is wrong.
 */
export async function openSlot(
  slot: Slot,
  init: VolumesInit,
  when: 'alone' | 'with others' | 'later',
  accept?: LocalVolumeInit['accept'],
): Promise<Volume | undefined> {
  const { dir } = slot.spec;
  try {
    const volume = await openDirectory(slot.spec, init, accept);
    slot.id = volume.id;
    slot.probe = await probeOf(dir);
    return volume;
  } catch (error) {
    if (when === 'alone' || (when === 'with others' && isRonError(error, 'conflict'))) throw error;
    init.signal.throwIfAborted();
    slot.lost = `${dir}: ${error instanceof Error ? error.message : String(error)}`;
    return undefined;
  }
}

async function openDirectory(
  { dir, domain }: DataDir,
  init: VolumesInit,
  accept: LocalVolumeInit['accept'],
): Promise<Volume> {
  const { config, publish, fs, signal } = init;
  const volume = await LocalVolume.open({
    dir,
    domain,
    segment_bytes: config.storage.segment_bytes,
    fs: fileSystemOf(config.data_dirs.length, fs),
    ...(accept && { accept }),
    onDamage: (record) => publish({ kind: 'damaged', record }),
    onState: (state) => publish({ kind: 'state', volume: dir, state }),
    onRebuild: (why) => publish({ kind: 'index rebuilt', volume: dir, why }),
    onLogDamage: ({ segment, offset, bytes, what }) =>
      publish({
        kind: 'log damage',
        volume: dir,
        what: `${what} of ${bytes} bytes in segment ${segment} at ${offset}`,
      }),
    signal,
  });
  // For the journals of uploads. On a disk that takes no names there will be none.
  await volume.log.files.fs.makeDir(join(dir, 'uploads')).catch(() => undefined);
  return volume;
}
