/** A store whose writes take as long as the explorer decides, for models. */
import { MemoryStore, type Change } from '@ron/custody/store';
import type { World } from '@ron/explorer';
import { imageWith, STORE_BYTES } from './testing.ts';
import type { KeyRecord } from './key-record.ts';

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
