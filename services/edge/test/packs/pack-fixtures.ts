/** Packs for tests: made ones, and those in `../shared/fixtures` beside the project if they are there. */
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bytesOf, tempDirFor, type After } from '@ron/testkit';
import type { OpenPack } from '../../src/packs/pack.ts';
import { PmtilesOpener } from '../../src/packs/pmtiles/pmtiles-opener.ts';
import { places } from './hilbert.ts';
import type { TestTile } from './make-pmtiles.ts';

const FIXTURES = join(import.meta.dirname, '../../../../../shared/fixtures');

/** The path of a fixture; undefined where the project lies alone. */
export function fixture(name: string): string | undefined {
  const path = join(FIXTURES, name);
  return existsSync(path) ? path : undefined;
}

/** Tiles of all places up to a zoom level, with different contents of about `bytes` each, except every fifth. */
export function someTiles(zoom: number, bytes: number, seed = 1): TestTile[] {
  return [...places(0, zoom)].map(([z, x, y], at) => {
    const isShared = at % 5 === 0;
    return { z, x, y, bytes: isShared ? bytesOf(16, seed) : bytesOf(bytes + (at % 7), seed + at) };
  });
}

export interface TestPacks {
  readonly dir: string;
  readonly opener: PmtilesOpener;
  readonly signal: AbortSignal;
  /** Problems that reads reported. */
  readonly damages: string[];
  /** Writes a pack and opens it, with a sidecar beside it. */
  open(name: string, bytes: Uint8Array): Promise<OpenPack & { readonly path: string }>;
  /** Opens a pack that exists. */
  openFile(path: string, sidecar?: string): Promise<OpenPack>;
}

export function testPacks(t: After): TestPacks {
  const dir = tempDirFor(t);
  const opener = new PmtilesOpener();
  const { signal } = new AbortController();
  const damages: string[] = [];
  const open = new Set<OpenPack>();
  t.after(async () => {
    for (const pack of open) await pack.close();
    await opener[Symbol.asyncDispose]();
  });
  const openFile = async (path: string, sidecar = `${path}.b3`): Promise<OpenPack> => {
    const onDamage = (problem: string): void => void damages.push(problem);
    const pack = await opener.open({ path, sidecar, expect: undefined, onDamage, signal });
    open.add(pack);
    return pack;
  };
  return {
    dir,
    opener,
    signal,
    damages,
    openFile,
    async open(name, bytes) {
      const path = join(dir, `${name}.pmtiles`);
      await writeFile(path, bytes);
      return Object.assign(await openFile(path), { path });
    },
  };
}
