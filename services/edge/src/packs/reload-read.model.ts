/**
 * Model of reloads against reads, on the real table of mounts. The explorer decides when a file is verified, when a read of the
 * disk ends, and when a pack is closed.
 *
 * A reader always finds a mounted pack, and never reads a closed one. Once all readers have left, every replaced pack was closed
 * once, and the last one is open.
 */
import assert from 'node:assert/strict';
import type { Build, Model, World } from '@ron/explorer';
import { Cell, touch } from '@ron/kernel';
import type { newMountTable as NewMountTable, MountTable } from './mount-table.ts';
import type { MountedPack } from './mounted-pack.ts';
import type { OpenPack } from './pack.ts';

/** The code under test; the mutation tests replace a part of it. */
export interface Parts {
  readonly MountTable: typeof MountTable;
  readonly MountedPack: typeof MountedPack;
  readonly newMountTable: typeof NewMountTable;
}

export interface ReloadInit {
  readonly readers: number;
  readonly reloads: number;
  /** Whether the pack is removed at the end: then a reader may find none. */
  readonly isRemoved: boolean;
}

const NAME = 'a';

/** A pack whose reads and whose close take time. */
class ModelPack {
  readonly #world: World;
  closes = 0;
  readonly problem = undefined;

  constructor(world: World) {
    this.#world = world;
  }

  async read(): Promise<void> {
    this.#requireOpen();
    await this.#world.io('read');
    this.#requireOpen();
  }

  async close(): Promise<void> {
    touch(this);
    this.closes += 1;
    await this.#world.io('close');
  }

  #requireOpen(): void {
    touch(this);
    assert.equal(this.closes, 0, 'a reader used a closed pack');
  }
}

export function reloadAgainstRead(parts: Parts, { readers, reloads, isRemoved }: ReloadInit): Build {
  return (world): Model => {
    const table = new parts.MountTable(new Cell('routing_table', 2, parts.newMountTable()), 100);
    const packs: ModelPack[] = [];
    const mount = (): void => {
      const pack = new ModelPack(world);
      packs.push(pack);
      table.mount(
        new parts.MountedPack({ name: NAME, pack: pack as unknown as OpenPack, identity: `${packs.length}` }),
      );
    };
    mount();
    world.task('pack_verifier', async () => {
      for (let round = 0; round < reloads; round += 1) {
        await world.io('verify');
        mount();
      }
      if (isRemoved) table.unmount(NAME);
    });
    for (let reader = 0; reader < readers; reader += 1) {
      world.task(`reader ${reader}`, async () => {
        const mounted = table.get(NAME);
        if (mounted === undefined) return assert.ok(isRemoved, 'a reader found no pack');
        using _ = mounted.hold();
        await (mounted.pack as unknown as ModelPack).read();
      });
    }
    return {
      final: () => {
        const open = isRemoved ? undefined : packs.at(-1);
        for (const pack of packs) {
          assert.equal(
            pack.closes,
            pack === open ? 0 : 1,
            'a replaced pack is closed once, and the mounted one is open',
          );
        }
      },
    };
  };
}
