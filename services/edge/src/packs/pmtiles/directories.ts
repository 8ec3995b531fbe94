/**
 * The decoded directories of all packs.
 *
 * Contract: concurrent loads of one directory share one read and one decoding. A directory of a closed pack is never found
 * again, because each pack has a number of its own.
 * Bound: `CACHE_BYTES` of decoded directories, evicted as `Cache` does it; `LOADS_MAX` are decoded at a time, `WAITING_MAX`
 * loads wait. Overflow: `busy`. Cancellation: by the signal.
 */
import { Cache } from '@ron/cache';
import { FairSemaphore, SingleFlight } from '@ron/kernel';
import type { Directory } from './directory.ts';

const CACHE_BYTES = 64 * 1024 * 1024;
/** The largest directory that is kept has 1.4 million entries. */
const ENTRY_BYTES_MAX = 32 * 1024 * 1024;
const LOADS_MAX = 4;
const WAITING_MAX = 1024;

export class Directories {
  readonly #cache = new Cache<Directory>({ bytes_max: CACHE_BYTES, entry_bytes_max: ENTRY_BYTES_MAX });
  readonly #loads = new SingleFlight<Directory>('pack.directories', { runs_max: WAITING_MAX });
  readonly #decoding = new FairSemaphore('pack.directories', {
    limit: LOADS_MAX,
    quantum: 1,
    capacity: WAITING_MAX,
    keys_max: WAITING_MAX,
  });

  /** Bytes of decoded directories in memory. */
  get bytes(): number {
    return this.#cache.bytes;
  }

  get(pack: number, offset: number): Directory | undefined {
    return this.#cache.get(`${pack} ${offset}`);
  }

  /** The directory from memory, or by `load`. */
  async find(
    pack: number,
    offset: number,
    signal: AbortSignal,
    load: (signal: AbortSignal) => Promise<Directory>,
  ): Promise<Directory> {
    const key = `${pack} ${offset}`;
    const known = this.#cache.get(key);
    if (known !== undefined) return known;
    return await this.#loads.run(key, signal, async (flight) => {
      const directory = await this.#decoding.run(String(pack), 1, flight.signal, () => load(flight.signal));
      this.#cache.set(key, directory, directory.bytes);
      return directory;
    });
  }
}
