import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { MountTable, newMountTable } from './mount-table.ts';
import { MountedPack } from './mounted-pack.ts';
import { reloadAgainstRead, type Parts, type ReloadInit } from './reload-read.model.ts';

const PARTS: Parts = { MountTable, MountedPack, newMountTable };
const TWO_READERS: ReloadInit = { readers: 2, reloads: 1, isRemoved: false };
const TWO_RELOADS: ReloadInit = { readers: 1, reloads: 2, isRemoved: false };
const REMOVED: ReloadInit = { readers: 2, reloads: 0, isRemoved: true };

for (const init of [TWO_READERS, TWO_RELOADS, REMOVED]) {
  // [edge I-1] [edge I-2] Readers need no lock: they see one version or the next.
  test(`readers never use a closed pack: ${JSON.stringify(init)}`, async (t) => {
    const { schedules } = await assertHolds(reloadAgainstRead(PARTS, init));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'a retired pack is closed although it is held',
    module: './mounted-pack.ts',
    find: 'this.#isRetired = true;\n    if (this.#holders === 0) this.#close();',
    replace: 'this.#isRetired = true;\n    this.#close();',
    caught: /closed pack|closed once/,
  },
  {
    bug: 'the last holder does not close a retired pack',
    module: './mounted-pack.ts',
    find: 'if (this.#isRetired && this.#holders === 0) this.#close();',
    replace: '',
    caught: /closed once/,
  },
  {
    bug: 'a holder that lets go closes a pack that another holds',
    module: './mounted-pack.ts',
    find: 'if (this.#isRetired && this.#holders === 0) this.#close();',
    replace: 'if (this.#isRetired) this.#close();',
    caught: /closed pack|closed once/,
  },
  {
    bug: 'a replaced pack is not retired',
    module: './mount-table.ts',
    find: 'if (next.get(pack.name) === pack) continue;',
    replace: 'if (next.has(pack.name)) continue;',
    caught: /closed once/,
  },
] as const;

for (const { bug, module, find, replace, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<Partial<Parts>>(import.meta.resolve(module), find, replace);
    await assertCaught(reloadAgainstRead({ ...PARTS, ...broken }, TWO_READERS), {}, caught);
  });
}
