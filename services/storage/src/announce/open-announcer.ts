/** Opens the announcer of storage. Without an index there is none, and changes are not noted. */
import type { StorageContext } from '../service.ts';
import type { Engine } from '../volumes/engine.ts';
import { Announcer } from './announcer.ts';
import type { ChangedObjects } from './changed-objects.ts';
import { announceTo } from './index-calls.ts';
import { providedObjects } from './provided-objects.ts';
import { openWalkCursor } from './walk-cursor.ts';

type Context = Pick<StorageContext, 'config' | 'runtime' | 'log' | 'fs'>;

export async function openAnnouncer(
  { config, runtime, log, fs }: Context,
  engine: Engine,
  changed: ChangedObjects,
): Promise<Announcer | undefined> {
  const { index_url: url, index_capability_file: capability_file } = config.storage;
  if (url === undefined || capability_file === undefined) {
    changed.close();
    return undefined;
  }
  const onCursorProblem = (error: unknown): void =>
    log.warn({ err: error }, 'failed to store the position of the announcements');
  const announce = announceTo({ url, capability_file, deadline_ms: runtime.declaration.deadlines.announce.ms });
  return new Announcer({
    objects: providedObjects(engine.store, config.auth.reads),
    changed,
    cursor: await openWalkCursor({ dir: engine.dir, fs, onProblem: onCursorProblem }),
    async send(announcement, stopping) {
      using deadline = runtime.deadline('announce', { signal: stopping });
      return await runtime.retry('announce', (signal) => announce(announcement, signal), { deadline });
    },
    async read(work, stopping) {
      using deadline = runtime.deadline('announce_read', { signal: stopping });
      return await deadline.run(work);
    },
    onProblem: (error) =>
      log.warn(
        { err: error },
        'index does not accept announcements: other nodes do not learn of new objects; see the log of index',
      ),
  });
}
