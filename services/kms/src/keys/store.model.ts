/** A store whose writes take as long as the explorer decides, for models. */
import { MemoryStore, type Change } from '@ron/custody/store';
import type { World } from '@ron/explorer';
import { imageWith, STORE_BYTES } from './testing.ts';
import type { KeyRecord } from './key-record.ts';

/** A key with one version. */
export const START: KeyRecord = {
  name: 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10',
  tenant: 'acme',
  purpose: 'docs',
  alg: 'ed25519',
  verify_mode: 'or',
  min_version: 1,
  imported: false,
  versions: [{ version: 1, handle: 'key 1', public: [], created_ms: 0 }],
};

export class ModelStore extends MemoryStore {
  readonly #world: World;

  constructor(world: World, ...records: readonly KeyRecord[]) {
    super(STORE_BYTES, imageWith(records));
    this.#world = world;
  }

  protected override async write(changes: readonly Change[]): Promise<void> {
    await this.#world.io('disk');
    await super.write(changes);
  }

  /** The record that is on disk. */
  durable(table: string, key: string): unknown {
    return JSON.parse(Buffer.from(this.get(table, key)!).toString());
  }
}
