/** Shared by the tests of MBTiles: an opener in a temporary directory. */
import { join } from 'node:path';
import { Deadline, NEVER } from '@ron/kernel';
import { tempDir } from '@ron/testkit';
import { MbtilesOpener } from '../../src/packs/mbtiles/mbtiles-opener.ts';
import type { OpenPack } from '../../src/packs/pack.ts';

export interface TestPacks extends AsyncDisposable {
  readonly path: (file: string) => string;
  /** Opens a file; damage is appended to `damage`. */
  open(file: string): Promise<OpenPack>;
  readonly damage: string[];
}

export async function openTestPacks(
  init: { readonly read_ms?: number; readonly module?: URL } = {},
): Promise<TestPacks> {
  const temp = await tempDir();
  const { read_ms = 5000, module } = init;
  const opener = new MbtilesOpener({
    readDeadline: () => Deadline.after('pack_read', read_ms),
    ...(module && { module }),
  });
  const damage: string[] = [];
  const path = (file: string): string => join(temp.path, file);
  return {
    path,
    damage,
    open: (file) =>
      opener.open({
        path: path(file),
        sidecar: `${path(file)}.b3`,
        expect: undefined,
        onDamage: (problem) => damage.push(problem),
        signal: NEVER,
      }),
    async [Symbol.asyncDispose]() {
      await opener[Symbol.asyncDispose]();
      await temp[Symbol.asyncDispose]();
    },
  };
}
