/**
 * Converts copies into stripes: k chunks of an object get m parity shards, each on another volume, and then need no copies.
 *
 * Contract: it works on acknowledged objects, in the background. A stripe counts once all its shards are durable and were
 * read back, and every volume with its parity has recorded it; the next compaction removes the copies. A crash before that
 * leaves the copies, and garbage.
 *
 * After a run every chunk survives the loss of as many volumes as there are parity shards. The remainder of an object, and
 * all chunks that are written while there are fewer volumes than shards, form shorter stripes with as much parity. A single
 * chunk waits for those of other objects until the end of the run. Chunks that are left then, or fit no stripe, are listed in
 * `stripes.lone` and get copies, as objects of one record do.
 * Bound: two stripes of ids, one stripe of contents, one page of a manifest. Reads and writes are paced. Cancellation: by the
 * signal, at any wait.
 */
import { blake3 } from '@napi-rs/blake-hash';
import {
  chunkKey,
  encodeStripe,
  parseManifest,
  parsePage,
  RecordType,
  stripeId,
  type IdSet,
  type NewRecord,
  type StripeLayout,
} from '@ron/cas';
import { assert, isRonError, RonError, sched } from '@ron/kernel';
import { placeShards } from '../placement/shard-placement.ts';
import type { Member } from '../membership/member.ts';
import { withVolumeTimeout } from '../set/volume-timeout.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export interface StriperInit {
  set: VolumeSet;
  /** Default 6. */
  data_shards?: number;
  /** Default 3. */
  parity_shards?: number;
  /** Waits until `bytes` more may be read or written. */
  pace: (bytes: number, signal: AbortSignal) => Promise<void>;
}

export interface StriperReport {
  readonly objects: number;
  readonly stripes: number;
  /** Stripes that could not be made; the next run tries again. */
  readonly failed: number;
  /** Chunks that fit no stripe: they have copies. */
  readonly lone: number;
}

const NOTHING: StriperReport = { objects: 0, stripes: 0, failed: 0, lone: 0 };

interface Shard {
  readonly id: Uint8Array;
  readonly type: number;
  readonly payload: Uint8Array;
}

/** Contents by their keys, in order. */
type Group = Map<string, Uint8Array>;

const LIST_COUNT = 256;
/** The parity of a single chunk would be the chunk itself. */
const WIDTH_MIN = 2;

export class Striper {
  readonly data_shards: number;
  readonly parity_shards: number;
  readonly #set: VolumeSet;
  readonly #pace: StriperInit['pace'];
  #report = NOTHING;
  /** Single remaining chunks of objects. */
  #singles: Group = new Map();
  #isRunning = false;

  constructor(init: StriperInit) {
    this.#set = init.set;
    this.#pace = init.pace;
    this.data_shards = init.data_shards ?? 6;
    this.parity_shards = init.parity_shards ?? 3;
    assert(this.data_shards >= 1 && this.parity_shards >= 1, 'a stripe has data and parity');
  }

  /** Progress of the current run, or the result of the last one. */
  get report(): StriperReport {
    return this.#report;
  }

  /** Why stripes cannot have their configured shape now. */
  get problem(): string | undefined {
    const needed = this.data_shards + this.parity_shards;
    const count = this.#takers;
    if (count >= needed) return undefined;
    const instead = this.#width >= WIDTH_MIN ? `new ones have ${this.#width} chunks` : 'chunks have copies';
    return `${count} volumes take records, a stripe needs ${needed}: ${instead}`;
  }

  /** Processes all objects. */
  async run(signal: AbortSignal): Promise<StriperReport> {
    if (this.#isRunning) throw new RonError('conflict', 'stripes are being made already');
    this.#isRunning = true;
    this.#report = NOTHING;
    this.#singles = new Map();
    try {
      const lone = this.#set.stripes.emptyLone();
      let after: Uint8Array | undefined;
      do {
        const listed = await this.#set.inventory('object', after, LIST_COUNT);
        for (const { id, type } of listed) {
          signal.throwIfAborted();
          await sched.pause('stripes.make');
          if (type === RecordType.manifest) await this.#stripeObject(id, lone, signal);
          this.#count('objects');
        }
        after = listed.at(-1)?.id;
      } while (after !== undefined);
      while (this.#singles.size > 0) await this.#makeSome(this.#singles, this.#width, lone, signal);
      this.#set.stripes.lone = lone;
      return this.#report;
    } finally {
      this.#isRunning = false;
    }
  }

  get #takers(): number {
    return this.#set.placement.places.filter((member) => member.takesRecords).length;
  }

  /** How many chunks a new stripe can have now. */
  get #width(): number {
    return Math.min(this.data_shards, this.#takers - this.parity_shards);
  }

  async #stripeObject(hash: Uint8Array, lone: IdSet, signal: AbortSignal): Promise<void> {
    try {
      const record = await this.#set.get('object', hash, signal);
      if (record?.type !== RecordType.manifest) return;
      await this.#pace(record.payload.length, signal);
      const manifest = parseManifest(record.payload, hash);
      const group: Group = new Map();
      for (const [index, page] of manifest.pages.entries()) {
        const bytes = (await this.#set.get('content', page.id, signal))?.payload;
        if (bytes === undefined) return;
        await this.#pace(bytes.length, signal);
        for (const { id } of parsePage(bytes, manifest, index, hash)) {
          if (this.#isWaiting(id)) group.set(chunkKey(id), id);
          // So that the remainder after a full stripe is never a single chunk.
          if (group.size >= 2 * this.data_shards) await this.#makeSome(group, this.#width, lone, signal);
        }
      }
      await this.#makeRest(group, lone, signal);
    } catch (error) {
      // A manifest that cannot be read is left to repair.
      signal.throwIfAborted();
      this.#count('failed');
      void error;
    }
  }

  /** Whether a chunk should be in a stripe and is in none. */
  #isWaiting(id: Uint8Array): boolean {
    return !this.#singles.has(chunkKey(id)) && !this.#set.stripes.protects(id) && this.#set.isDurable('content', id);
  }

  /** The last chunks of an object, in stripes of about the same length. */
  async #makeRest(group: Group, lone: IdSet, signal: AbortSignal): Promise<void> {
    const width = this.#width;
    for (let stripes = width < WIDTH_MIN ? 0 : Math.ceil(group.size / width); stripes > 0; stripes--) {
      const count = Math.ceil(group.size / stripes);
      if (count >= WIDTH_MIN) await this.#makeSome(group, count, lone, signal);
    }
    for (const [key, id] of group) this.#singles.set(key, id);
    while (this.#singles.size >= this.data_shards) await this.#makeSome(this.#singles, this.#width, lone, signal);
  }

  /** Takes the first `count` out of a group and makes a stripe of them. A single one cannot form a stripe. */
  async #makeSome(group: Group, count: number, lone: IdSet, signal: AbortSignal): Promise<void> {
    const some = [...group].slice(0, Math.max(1, count));
    for (const [key] of some) group.delete(key);
    const ids = some.map(([, id]) => id);
    if (ids.length >= WIDTH_MIN && (await this.#try(ids, signal))) return;
    for (const id of ids) {
      lone.add(id);
      this.#count('lone');
    }
  }

  /** False when these cannot form a stripe. */
  async #try(ids: readonly Uint8Array[], signal: AbortSignal): Promise<boolean> {
    try {
      await this.make(ids, signal);
      this.#count('stripes');
      return true;
    } catch (error) {
      signal.throwIfAborted();
      if (isRonError(error, 'conflict')) return false;
      this.#count('failed');
      return await this.#tryWithout(ids, signal);
    }
  }

  /** A chunk that cannot be read does not affect the others. */
  async #tryWithout(ids: readonly Uint8Array[], signal: AbortSignal): Promise<boolean> {
    const good: Uint8Array[] = [];
    for (const id of ids) {
      const shard = await this.#load(id, signal).catch(() => signal.throwIfAborted());
      if (shard !== undefined) good.push(id);
    }
    if (good.length === ids.length) return true;
    if (good.length >= WIDTH_MIN) return await this.#try(good, signal);
    for (const id of good) this.#singles.set(chunkKey(id), id);
    return true;
  }

  #count(what: keyof StriperReport): void {
    this.#report = { ...this.#report, [what]: this.#report[what] + 1 };
  }

  /** Makes a stripe of contents. It counts once this resolves. `conflict` when they cannot form one. */
  async make(ids: readonly Uint8Array[], signal: AbortSignal): Promise<StripeLayout> {
    assert(ids.length <= this.data_shards, `a stripe has at most ${this.data_shards} contents`);
    const held: string[] = [];
    const hold = (id: Uint8Array): void => {
      this.#set.holds.take(chunkKey(id));
      held.push(chunkKey(id));
    };
    try {
      ids.forEach(hold);
      const data = await Promise.all(ids.map((id) => this.#load(id, signal)));
      const shards = [...data, ...this.#parityOf(data)];
      // For example zeros, which are their own parity: a volume keeps one of identical records.
      if (new Set(shards.map((shard) => chunkKey(shard.id))).size < shards.length) {
        throw new RonError('conflict', 'two shards of the stripe would be the same');
      }
      shards.slice(ids.length).forEach((shard) => hold(shard.id));
      return await this.#store(shards, ids.length, signal);
    } finally {
      for (const key of held) this.#set.holds.release(key);
    }
  }

  async #load(id: Uint8Array, signal: AbortSignal): Promise<Shard> {
    const record = await this.#set.get('content', id, signal);
    if (record === undefined) throw new RonError('not_found', 'a content of the stripe is gone');
    await this.#pace(record.payload.length, signal);
    return { id, type: RecordType.chunk, payload: record.payload };
  }

  #parityOf(data: readonly Shard[]): Shard[] {
    const contents = data.map((shard) => shard.payload);
    return this.#set.stripes
      .encode(contents, this.parity_shards)
      .map((payload) => ({ id: blake3(payload), type: RecordType.parity, payload }));
  }

  async #store(shards: readonly Shard[], data_shards: number, signal: AbortSignal): Promise<StripeLayout> {
    const homes = placeShards({
      placement: this.#set.placement,
      ids: shards.map((shard) => shard.id),
      holdersOf: (id) => this.#set.members.filter((member) => member.holdsDurably('content', id)),
    });
    await Promise.all(shards.map((shard, index) => this.#keep(shard, homes[index]!, signal)));
    const layout = {
      data_shards,
      shards: shards.map(({ id, payload }, index) => ({ id, bytes: payload.length, home: homes[index]!.id })),
    };
    await this.#announce(layout, homes.slice(data_shards), signal);
    return layout;
  }

  /** The shard is durable in its place and was read back. */
  async #keep(shard: Shard, home: Member, signal: AbortSignal): Promise<void> {
    if (!home.holdsDurably('content', shard.id)) {
      await this.#pace(shard.payload.length, signal);
      await withVolumeTimeout(home.write([shard], signal));
    }
    await this.#pace(shard.payload.length, signal);
    const record = await withVolumeTimeout(home.volume.get('content', shard.id, signal));
    if (record === undefined) throw new RonError('integrity', `a shard on ${home.name} could not be read back`);
  }

  /** All or none: a stripe that only some volumes record would not survive the loss that it protects against. */
  async #announce(layout: StripeLayout, homes: readonly Member[], signal: AbortSignal): Promise<void> {
    const id = stripeId(layout.shards);
    const record: NewRecord = { type: RecordType.stripe, id, payload: encodeStripe(layout) };
    const results = await Promise.allSettled(homes.map((home) => withVolumeTimeout(home.write([record], signal))));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed === undefined) return;
    await this.#set.stripes.end({ id, layout }, signal);
    throw failed.reason;
  }
}
