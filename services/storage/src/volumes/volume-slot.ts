/** A directory and the volume in it. */
import { join } from 'node:path';
import { LocalVolume, type LocalVolumeInit, type Volume } from '@ron/cas';
import { VolumeLifecycle, type MemberInit, type Probe } from '@ron/durability';
import { assert, isRonError } from '@ron/kernel';
import type { StorageConfig } from '../config.ts';
import { parseDataDir, type DataDir } from './data-dirs.ts';
import { probeOf, spaceOf } from './directory-probes.ts';
import { fileSystemOf } from './disk-share.ts';
import type { EngineEvent } from './engine.ts';
import { WriteProbe } from './write-probe.ts';

export interface VolumesInit {
  readonly config: StorageConfig;
  readonly publish: (event: EngineEvent) => void;
  /** The file system below a directory. Default: the real one. */
  readonly fs?: LocalVolumeInit['fs'];
  readonly signal: AbortSignal;
}

/** A directory, configured or not, and the life of the volume in it. */
export class Slot {
  spec: DataDir;
  /** The volume that is open there, or was; of a directory that was never open, the one that was last seen there. */
  id: string | undefined;
  readonly lifecycle: VolumeLifecycle;
  writes: WriteProbe | undefined;
  /** Detects that the directory was replaced or has vanished. */
  probe: Probe | undefined;
  /** The opening under way, which may take any time: a directory is not opened twice. */
  opening: Promise<void> | undefined;
  /** Whether the configuration names the directory. A volume that it does not name is drained and then removed. */
  isConfigured: boolean;

  constructor(spec: DataDir, { isConfigured = true, lifecycle = VolumeLifecycle.opening() } = {}) {
    this.spec = spec;
    this.isConfigured = isConfigured;
    this.lifecycle = lifecycle;
  }

  get name(): string {
    return this.spec.dir;
  }

  /** It stands for a volume whose directory is not known. */
  get isPlaceless(): boolean {
    return this.spec.dir === this.id;
  }

  get isOpen(): boolean {
    return this.lifecycle.open !== undefined;
  }

  get isAbandoned(): boolean {
    return this.lifecycle.state.kind === 'abandoned';
  }

  /** Why the volume is not open; undefined when it is, or is opened for the first time. */
  get problem(): string | undefined {
    return this.lifecycle.reason;
  }

  /** The message for a volume that the operator abandons. */
  get abandonedReason(): string {
    return `${this.name}: it was given up`;
  }

  /** For a directory that cannot be opened: the first reason counts. */
  refuse(reason: string): void {
    if (this.problem === undefined) this.lifecycle.apply({ type: 'openFailed', reason });
  }
}

const GIB = 1024 ** 3;
/** A volume in memory has no directory. */
export const NOWHERE: DataDir = { dir: '', domain: '', weight: 1, isDraining: false };

/** For a volume of the roster that is not where it was last seen. */
export function absentSlot(id: string, dir: string | undefined): Slot {
  const lifecycle = VolumeLifecycle.absent(
    `the volume ${id}${dir === undefined ? '' : `, last seen in ${dir},`} is away`,
  );
  const slot = new Slot(
    { dir: id, domain: id, weight: undefined, isDraining: false },
    { isConfigured: false, lifecycle },
  );
  slot.id = id;
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
  slot.writes = new WriteProbe(volume, spec.dir === '' ? undefined : spec.dir);
  const duty = spec.isDraining || !slot.isConfigured ? 'draining' : 'active';
  return { volume, weight: await weightOf(spec), duty, lifecycle: slot.lifecycle };
}

export const weightOf = async (spec: DataDir): Promise<number> => spec.weight ?? (await size_gib(spec.dir));

/** A file system of unknown size counts as a small one. */
async function size_gib(dir: string): Promise<number> {
  const { total_bytes = GIB } = (await spaceOf(dir)) ?? {};
  return Math.max(0.001, total_bytes / GIB);
}

/**
 * Undefined when it cannot be opened; then the slot has the reason. At start it throws for a single directory, and for any
 * directory that another process uses: then the configuration is wrong.
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
    const reason = `${dir}: ${error instanceof Error ? error.message : String(error)}`;
    slot.lifecycle.apply({ type: 'openFailed', reason });
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
  // For the journals of uploads. On a disk that cannot create a directory there will be none.
  await volume.log.files.fs.makeDir(join(dir, 'uploads')).catch(() => undefined);
  return volume;
}
