/** Checks of the volumes of storage. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Home } from '../home.ts';
import { knownVolumes } from '../up/table/known-volumes.ts';
import { messageOf, type Finding } from './finding.ts';

/** Of a node that does not run: whether the directories of its volumes exist. */
export async function checkVolumes(home: Home): Promise<Finding[]> {
  try {
    const known = knownVolumes(home.of('storage').volumes);
    return await Promise.all(
      known.map(async ({ item }): Promise<Finding> => {
        const dir = item.replace(/(?:@(?:domain|weight)=[^@]*|@draining)+$/, '');
        const found = await stat(join(dir, 'superblock')).catch(() => undefined);
        if (found !== undefined) return { level: 'ok', what: `volume ${dir}` };
        const fix = 'mount its disk, or after the start give it up with `ron volumes lose`';
        return { level: 'fail', what: `volume ${dir} is missing`, fix };
      }),
    );
  } catch (error) {
    return [{ level: 'fail', what: 'volumes of storage', fix: messageOf(error) }];
  }
}
