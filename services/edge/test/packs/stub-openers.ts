/** The real registry and directory, with openers of a test. */
import { Cell, Deadline, isRonError, Mpsc, NEVER } from '@ron/kernel';
import { DiskGate, realFileSystem } from '@ron/log';
import { MountTable, newMountTable } from '../../src/packs/mount-table.ts';
import type { PackOpener } from '../../src/packs/pack.ts';
import { PackDirectory } from '../../src/packs/pack-directory.ts';
import type { PackJob } from '../../src/packs/pack-jobs.ts';
import { PackRegistry } from '../../src/packs/pack-registry.ts';
import { PackVerifier } from '../../src/packs/pack-verifier.ts';
import { somePmtiles } from './registry-support.ts';

async function* bodyOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

export function openRegistry(path: string, opener: PackOpener) {
  const directory = new PackDirectory(path, realFileSystem, new DiskGate({ calls_max: 2, late_ms: 5000 }), 1000);
  const jobs = new Mpsc<PackJob>('verify', 2);
  const ignored = (): void => undefined;
  const verifier = new PackVerifier({
    directory,
    isReadOnly: false,
    table: new MountTable(new Cell('routing_table', 2, newMountTable()), 10),
    openers: { pmtiles: opener, mbtiles: opener },
    jobs,
    budget_ms: 100,
    onMounted: ignored,
    onRemoved: ignored,
    onRefused: ignored,
    onDamaged: ignored,
  });
  const deadline = (signal?: AbortSignal): Deadline => Deadline.after('pack', 500, signal && { signal });
  const registry = new PackRegistry({ directory, verifier, bytes_max: 1e6, deadline, fetch: undefined });
  const stopping = new AbortController();
  const task = registry.run(stopping.signal);
  const put = (name: string, body: Uint8Array = somePmtiles(1)) =>
    registry.put({ name, from: bodyOf(body), expect: undefined, signal: NEVER }).then(
      () => 'mounted',
      (error: unknown) => (isRonError(error) ? error.code : String(error)),
    );
  return { registry, jobs, stopping, task, put };
}
