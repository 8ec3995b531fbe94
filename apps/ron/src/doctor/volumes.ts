/** Checks the volumes of storage. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../exits.ts';
import type { Home } from '../home.ts';
import { knownVolumes } from '../up/table/known-volumes.ts';
import type { Finding } from './finding.ts';

/** Checks that the volumes of a stopped node exist. */
export async function checkVolumes(home: Home): Promise<Finding[]> {
  try {
    const known = knownVolumes(home.of('storage').volumes);
    return await Promise.all(
      known.map(async ({ item }): Promise<Finding> => {
        const dir = item.replace(/(?:@(?:domain|weight)=[^@]*|@draining)+$/, '');
        const found = await stat(join(dir, 'superblock')).catch(() => undefined);
        if (found !== undefined) return { level: 'ok', what: `volume ${dir}` };
        const fix = 'mount its disk, or declare it lost after the start: `ron volumes lose`';
        return { level: 'fail', what: `volume ${dir} is missing`, fix };
      }),
    );
  } catch (error) {
    return [{ level: 'fail', what: 'volumes of storage', fix: messageOf(error) }];
  }
}
