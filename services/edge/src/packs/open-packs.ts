/** Opens the registry of packs of a configuration. The task `pack_verifier` mounts the files. */
import { basename, join } from 'node:path';
import { isRonError } from '@ron/kernel';
import { DiskGate, makeDirectory, rethrowDisk } from '@ron/log';
import type { Address } from '@ron/proto';
import { storageError } from '../fill/objects/storage-objects.ts';
import type { EdgeMeters } from '../metrics.ts';
import type { EdgeContext } from '../service.ts';
import type { OpenStorage } from '../storage.ts';
import { MbtilesOpener } from './mbtiles/mbtiles-opener.ts';
import { MountTable, newMountTable } from './mount-table.ts';
import { PackDirectory } from './pack-directory.ts';
import type { PackJob } from './pack-jobs.ts';
import { PackRegistry } from './pack-registry.ts';
import { PackVerifier } from './pack-verifier.ts';
import { PmtilesOpener, type SidecarFailed } from './pmtiles/pmtiles-opener.ts';

/** Of the four threads of Node's pool, so that a disk that hangs leaves some for other files. */
const DISK_CALLS_MAX = 2;
/** A pack, its sidecar and an upload with its sidecar. A scan of more entries would take too long. */
const ENTRIES_PER_PACK = 4;

export interface OpenPacksInit {
  /** The data directory; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly meters: Pick<EdgeMeters, 'integrity'>;
  readonly storage: OpenStorage | undefined;
}

export async function openPacks(context: EdgeContext, init: OpenPacksInit): Promise<PackRegistry> {
  const { config, runtime } = context;
  const directory = await openDirectory(context, init.dir);
  const onSidecarFailed: SidecarFailed = (path, problem) =>
    context.events.publish({ kind: 'pack hashes not kept', pack: basename(path), problem });
  const openers = {
    pmtiles: new PmtilesOpener({ onSidecarFailed }),
    mbtiles: new MbtilesOpener({ readDeadline: () => runtime.deadline('pack_read') }),
  };
  const { storage } = init;
  const verifier = new PackVerifier({
    directory,
    isReadOnly: init.dir === undefined,
    table: new MountTable(runtime.cell('routing_table', newMountTable()), config.packs.open_max),
    openers,
    jobs: runtime.mpsc<PackJob>('verify'),
    budget_ms: runtime.declaration.deadlines.pack.ms,
    ...reports(context, init),
  });
  return new PackRegistry({
    directory: init.dir === undefined ? undefined : directory,
    verifier,
    bytes_max: config.packs.bytes_max,
    deadline: (signal) => runtime.deadline('pack', signal && { signal }),
    fetch: storage && ((address, signal) => objectOf(storage, address, signal)),
  });
}

/** The bytes of an object, verified. */
async function* objectOf(storage: OpenStorage, address: Address, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* (await storage()).get(address, { signal, transient: true });
  } catch (error) {
    throw isRonError(error, 'not_found') ? error : storageError(error);
  }
}

/** Creates the default directory. In amnesia only a configured one is read. */
async function openDirectory(
  { config, fs, runtime }: EdgeContext,
  dir: string | undefined,
): Promise<PackDirectory | undefined> {
  const path = config.packs.dir ?? (dir && join(dir, 'packs'));
  if (path === undefined) return undefined;
  if (config.packs.dir === undefined) await makeDirectory(path).catch(rethrowDisk);
  const late_ms = runtime.declaration.deadlines.pack.ms;
  const entries_max = config.packs.open_max * ENTRIES_PER_PACK;
  return new PackDirectory(path, fs, new DiskGate({ calls_max: DISK_CALLS_MAX, late_ms }), entries_max);
}

function reports({ events }: EdgeContext, { meters }: OpenPacksInit) {
  return {
    onMounted: (pack: string, address: string) => events.publish({ kind: 'pack mounted', pack, address }),
    onRemoved: (pack: string) => events.publish({ kind: 'pack removed', pack }),
    onRefused: (pack: string, problem: string) => events.publish({ kind: 'pack refused', pack, problem }),
    onDamaged: (pack: string, problem: string) => {
      meters.integrity.at('pack').inc();
      events.publish({ kind: 'pack damaged', pack, problem });
    },
  };
}
