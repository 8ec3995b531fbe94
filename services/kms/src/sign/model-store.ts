/** A store for models: it begins with one key, and its writes take as long as the explorer decides. */
import { MemoryStore, type Change } from '@ron/custody/store';
import type { World } from '@ron/explorer';
import type { KeyRecord, KeyVersion } from '../keys/key-record.ts';
import { imageWith, STORE_BYTES } from '../keys/testing.ts';
import { KEYS, VERSIONS } from '../vault/tables.ts';

export const NAME = 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';

const START: KeyRecord = {
  name: NAME,
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

  constructor(world: World) {
    super(STORE_BYTES, imageWith([START]));
    this.#world = world;
  }

  /** The key as it is on disk. */
  get durable(): KeyRecord {
    const parse = <T>(bytes: Uint8Array): T => JSON.parse(Buffer.from(bytes).toString()) as T;
    const versions = this.range(VERSIONS, { start: NAME, end: `${NAME}~`, limit: 100 });
    const key = parse<Omit<KeyRecord, 'versions'>>(this.get(KEYS, NAME)!);
    return { ...key, versions: versions.map(({ value }) => parse<KeyVersion>(value)) };
  }

  protected override async write(changes: readonly Change[]): Promise<void> {
    await this.#world.io('disk');
    await super.write(changes);
  }
}
