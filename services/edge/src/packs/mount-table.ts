/**
 * The mounted packs by name: many readers, one writer.
 *
 * Contract: [edge I-1] readers load a snapshot; the writer, the task `pack_verifier`, replaces it as a whole inside the cell
 * `routing_table`. A replaced or removed pack is retired in the same step, so that readers that come later do not see it.
 * Bound: `open_max` open packs, including retired ones that requests still read. Overflow: `conflict` if the packs are mounted,
 * `busy` if retired ones have to be closed first.
 */
import { RonError, Snapshot, type Cell } from '@ron/kernel';
import type { MountedPack } from './mounted-pack.ts';

export interface MountTableState {
  readonly mounts: Snapshot<ReadonlyMap<string, MountedPack>>;
  /** Retired packs that are not closed. */
  readonly retired: Set<MountedPack>;
}

export const newMountTable = (): MountTableState => ({
  mounts: new Snapshot<ReadonlyMap<string, MountedPack>>('mounts', new Map()),
  retired: new Set(),
});

export class MountTable {
  readonly #state: Cell<MountTableState>;
  readonly #mounts: MountTableState['mounts'];
  readonly #open_max: number;

  constructor(state: Cell<MountTableState>, open_max: number) {
    this.#state = state;
    this.#mounts = state.withSync(({ mounts }) => mounts);
    this.#open_max = open_max;
  }

  get(name: string): MountedPack | undefined {
    return this.#mounts.load().get(name);
  }

  list(): MountedPack[] {
    return [...this.#mounts.load().values()];
  }

  /** Throws unless one more pack may be open, besides those that are being opened. */
  requireRoom(opening: number): void {
    const { size } = this.#mounts.load();
    const retired = this.#state.withSync((state) => state.retired.size);
    if (size + retired + opening < this.#open_max) return;
    if (size + opening < this.#open_max) throw new RonError('busy', 'requests still read replaced packs');
    throw new RonError('conflict', `${this.#open_max} packs are open: remove one, or raise packs.open_max`);
  }

  /** [edge I-2] Mounts a pack, and retires the one that it replaces. */
  mount(pack: MountedPack): void {
    this.#swap((mounts) => mounts.set(pack.name, pack));
  }

  /** Returns false if there is no such pack. */
  unmount(name: string): boolean {
    if (this.get(name) === undefined) return false;
    this.#swap((mounts) => mounts.delete(name));
    return true;
  }

  /** Retires all packs and waits until they are closed. */
  async close(): Promise<void> {
    this.#swap((mounts) => mounts.clear());
    const closing = this.#state.withSync(({ retired }) => [...retired]);
    await Promise.all(closing.map(({ closed }) => closed));
  }

  #swap(change: (mounts: Map<string, MountedPack>) => void): void {
    this.#state.withSync(({ mounts, retired }) => {
      const next = new Map(mounts.load());
      change(next);
      const previous = mounts.swap(next);
      for (const pack of previous.values()) {
        if (next.get(pack.name) === pack) continue;
        retired.add(pack);
        pack.retire();
        void pack.closed.then(() => this.#state.withSync((state) => void state.retired.delete(pack)));
      }
    });
  }
}
