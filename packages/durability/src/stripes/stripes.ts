/**
 * Contents that protect each other: k of them and m parity shards, each on another volume.
 *
 * Promise: any k shards give back the rest, and what is given back has the hash that it is asked for by. A stripe is known
 * on every volume that holds parity of it: while a content of it can be lost and got back, one of those is left.
 * Bound: the memory of the shards of one stripe, for each of `MEMORIES_MAX` shapes. A rebuild reads k shards at a time.
 * Cancellation: by the signal, between two reads.
 */
import { blake3 } from '@napi-rs/blake-hash';
import {
  chunkKey,
  decodeStripe,
  encodeStripe,
  IdSet,
  isRetiredStripe,
  notComplete,
  RecordType,
  type StripeLayout,
} from '@ron/cas';
import { isRonError, KeyedMutex, RonError, sched } from '@ron/kernel';
import { Stripe } from '@ron/simd';
import { mergeInventories } from '../repair/inventories.ts';
import type { Member } from '../membership/member.ts';
import { LATE, patiently, within } from '../set/patience.ts';
import type { Rescue } from '../set/read-many.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** Nearly all stripes are of one shape; the rests of objects are of others. */
const MEMORIES_MAX = 2;
/** Beyond so many, everything counts as one that no stripe takes. */
const LONE_MAX = 2 ** 22;

export interface FoundStripe {
  readonly id: Uint8Array;
  readonly layout: StripeLayout;
}

export interface WalkedStripe {
  readonly id: Uint8Array;
  readonly layout: StripeLayout | undefined;
}

/** Shards that were read, and those that were not there. */
interface Gathered {
  readonly shards: Map<number, Uint8Array>;
  readonly missing: number[];
}

/** A shard that somebody has and could not give now. */
const UNREAD = Symbol('unread');
type ShardRead = Uint8Array | typeof UNREAD | undefined;

/** Changes of stripes under way. Each belongs to a repair worker, of which there are far fewer. */
const CHANGES_MAX = 1024;
/** How long a shard may take while others could stand in for it. */
const SHARD_LAG_MS = 1000;

export class Stripes {
  readonly #set: VolumeSet;
  readonly #memories = new Map<string, Stripe>();
  /** Stripes that are being given up: nobody may rely on them any more. */
  readonly #ending = new Set<string>();
  readonly #mutex = new KeyedMutex('stripes', { keys_max: CHANGES_MAX, waiters_max: CHANGES_MAX });
  /** Contents that the striper could find no stripe for: copies stand in for one. */
  lone = this.emptyLone();

  constructor(set: VolumeSet) {
    this.#set = set;
  }

  /** Whether a stripe can give it back, as far as is known without reading. */
  protects(id: Uint8Array): boolean {
    return !this.#ending.has(chunkKey(id)) && this.#set.members.some((member) => knows(member, id));
  }

  emptyLone(): IdSet {
    return new IdSet({ ids_max: LONE_MAX });
  }

  /**
   * Whether it may count as stored because a stripe protects it: as many know the stripe as would have to have a copy, or
   * all that are to know it.
   */
  secures(id: Uint8Array): boolean {
    if (this.#ending.has(chunkKey(id))) return false;
    const needed = Math.min(this.#set.write_min, Math.max(1, this.#set.lone_copies - 1));
    const known = this.#set.members.filter((member) => member.isCurrent && member.holdsDurably('shard', id));
    return known.length >= needed;
  }

  /** Changes of where the shards of a stripe lie run one at a time: two concurrent ones could choose the same place. */
  async change<T>(id: Uint8Array, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#mutex.run(chunkKey(id), signal, work);
  }

  /** The stripe that a content or parity shard belongs to. */
  async find(id: Uint8Array, signal: AbortSignal): Promise<StripeLayout | undefined> {
    // What is rebuilt is checked: so whoever was away may be asked as well, after those who know better.
    const current = this.#set.members.filter((member) => knows(member, id));
    const stale = this.#set.members.filter((member) => !member.isCurrent && member.holds('shard', id));
    const late: Promise<StripeLayout | undefined>[] = [];
    for (const member of [...current, ...stale]) {
      const reading = this.#read(member, 'shard', id, signal);
      const layout = await within(reading, SHARD_LAG_MS);
      if (layout === LATE) late.push(reading);
      else if (layout !== undefined) return layout;
    }
    for (const reading of late) {
      const layout = await reading;
      if (layout !== undefined) return layout;
    }
    return undefined;
  }

  /** A content that nobody has; undefined when no stripe has it. Throws `integrity` when too few shards are left. */
  async rebuild(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const layout = await this.find(id, signal);
    if (layout === undefined) return undefined;
    const wanted = layout.shards.findIndex((shard) => Buffer.compare(shard.id, id) === 0);
    const { shards } = await this.#gather(layout, new Set([wanted]), signal);
    return this.#solve(layout, shards, [wanted]).get(wanted);
  }

  /** How to get a content back together with those that are read for it. */
  async rescue(id: Uint8Array, signal: AbortSignal): Promise<Rescue | undefined> {
    const layout = await this.find(id, signal);
    if (layout === undefined) return undefined;
    const data = layout.shards.slice(0, layout.data_shards);
    return { ids: data.map((shard) => shard.id), load: () => this.#loadAll(layout, signal) };
  }

  async #loadAll(layout: StripeLayout, signal: AbortSignal): Promise<ReadonlyMap<string, Uint8Array>> {
    const { shards, missing } = await this.#gather(layout, new Set(), signal);
    const data = missing.filter((index) => index < layout.data_shards);
    for (const [index, bytes] of this.#solve(layout, shards, data)) shards.set(index, bytes);
    return new Map([...shards].map(([index, bytes]) => [chunkKey(layout.shards[index]!.id), bytes]));
  }

  /** Makes `parity` out of k contents. */
  encode(contents: readonly Uint8Array[], parity_shards: number): Uint8Array[] {
    const bytes = Math.max(...contents.map((content) => content.length));
    const memory = this.#memory(contents.length, parity_shards, bytes);
    for (const [index, content] of contents.entries()) memory.set(index, content, bytes);
    memory.encode(bytes);
    return memory.shards.slice(contents.length).map((shard) => shard.slice(0, bytes));
  }

  /**
   * Gives up a stripe: from this step on no read relies on it. Durable when it resolves; one that fails keeps it for another
   * time. `not_ready` while a volume is away, which may need the stripe.
   */
  async end(stripe: FoundStripe, signal: AbortSignal): Promise<void> {
    const { incomplete } = this.#set;
    if (incomplete !== undefined) throw notComplete(`a stripe cannot be given up: ${incomplete}`);
    const keys = stripe.layout.shards.map((shard) => chunkKey(shard.id));
    for (const key of keys) this.#ending.add(key);
    try {
      const knowing = this.#set.members.filter((member) => member.holds('stripe', stripe.id));
      const record = { type: RecordType.unstripe, id: stripe.id, payload: encodeStripe(stripe.layout) };
      const told = await Promise.allSettled(knowing.map((member) => patiently(member.write([record], signal))));
      const failed = told.find((result) => result.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
    } finally {
      for (const key of keys) this.#ending.delete(key);
    }
  }

  /** Ends a stripe whose code is no longer read: it protects nothing. False when it is none, or a volume did not take it. */
  async endRetired(id: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const knowing = this.#set.members.filter((member) => member.holds('stripe', id) && member.isWritable);
    const ended = knowing.map(async (member) => {
      const record = await patiently(member.volume.get('stripe', id, signal));
      if (record === undefined || !isRetiredStripe(record.payload)) return false;
      await patiently(member.write([{ type: RecordType.unstripe, id, payload: record.payload }], signal));
      return true;
    });
    const results = await Promise.all(ended.map((each) => each.catch(() => false)));
    signal.throwIfAborted();
    return results.length > 0 && results.every(Boolean);
  }

  /** What each volume that knows a stripe says about it. Those that cannot be read are left out. */
  async views(id: Uint8Array, signal: AbortSignal): Promise<Map<Member, StripeLayout>> {
    const views = new Map<Member, StripeLayout>();
    for (const member of this.#set.members.filter((each) => each.holds('stripe', id))) {
      const layout = await this.#read(member, 'stripe', id, signal);
      if (layout !== undefined) views.set(member, layout);
    }
    return views;
  }

  /** Visits every stripe once; with no layout, one that is known and could not be read anywhere. */
  async walk(signal: AbortSignal, visit: (stripe: WalkedStripe) => void | Promise<void>): Promise<void> {
    const members = this.#set.members.filter((member) => member.isReadable);
    const onPage = (): Promise<void> => sched.pause('stripes.walk');
    await mergeInventories({ members, kind: 'stripe', onPage, page_count: 256, signal }, async ({ held, holders }) => {
      let layout: StripeLayout | undefined;
      for (const member of holders) layout ??= await this.#read(member, 'stripe', held.id, signal);
      return await visit({ id: held.id, layout });
    });
  }

  async #read(
    member: Member,
    kind: 'stripe' | 'shard',
    id: Uint8Array,
    signal: AbortSignal,
  ): Promise<StripeLayout | undefined> {
    try {
      const record = await member.volume.get(kind, id, signal);
      return record === undefined ? undefined : decodeStripe(record.payload);
    } catch {
      signal.throwIfAborted();
      return undefined;
    }
  }

  /**
   * Reads shards until there are k, data first, never one of `without`. One that takes long is waited for only when there are
   * too few others.
   */
  async #gather(layout: StripeLayout, without: ReadonlySet<number>, signal: AbortSignal): Promise<Gathered> {
    const shards = new Map<number, Uint8Array>();
    const missing: number[] = [...without];
    const late = new Map<number, Promise<ShardRead>>();
    let unread = 0;
    const take = (index: number, read: ShardRead): void => {
      if (read instanceof Uint8Array) shards.set(index, read);
      else missing.push(index);
      if (read === UNREAD) unread += 1;
    };
    const rest = [...layout.shards.keys()].filter((index) => !without.has(index));
    while (shards.size < layout.data_shards && rest.length > 0) {
      const batch = rest.splice(0, layout.data_shards - shards.size);
      const readings = batch.map((index) => this.#shard(layout.shards[index]!.id, signal));
      const reads = await Promise.all(readings.map((reading) => within(reading, SHARD_LAG_MS)));
      for (const [at, read] of reads.entries()) {
        if (read === LATE) late.set(batch[at]!, readings[at]!);
        else take(batch[at]!, read);
      }
    }
    for (const [index, reading] of late) {
      if (shards.size < layout.data_shards) take(index, await reading);
      else missing.push(index);
    }
    if (shards.size >= layout.data_shards) return { shards, missing };
    // Shards that could not be read now, or are on a volume that is away, may be read another time.
    const { away } = this.#set;
    const isLost = shards.size + unread < layout.data_shards && away === undefined;
    const what = `${shards.size} shards of a stripe could be read, ${layout.data_shards} are needed`;
    throw isLost ? new RonError('integrity', what) : notComplete(away === undefined ? what : `${what}; ${away}`);
  }

  async #shard(id: Uint8Array, signal: AbortSignal): Promise<ShardRead> {
    let isUnread = false;
    for (const member of this.#set.holdersOf('content', id)) {
      try {
        const record = await member.volume.get('content', id, signal);
        if (record !== undefined) return record.payload;
      } catch (error) {
        signal.throwIfAborted();
        isUnread ||= !isRonError(error, 'integrity');
        this.#set.fault('content', id, member.volume, error);
      }
    }
    return isUnread ? UNREAD : undefined;
  }

  /** Makes the shards `wanted` from k others, in one step, and checks them. */
  #solve(
    layout: StripeLayout,
    shards: ReadonlyMap<number, Uint8Array>,
    wanted: readonly number[],
  ): Map<number, Uint8Array> {
    const { data_shards } = layout;
    const bytes = Math.max(...layout.shards.map((shard) => shard.bytes));
    const memory = this.#memory(data_shards, layout.shards.length - data_shards, bytes);
    const present = [...shards.keys()].slice(0, data_shards);
    for (const index of present) memory.set(index, shards.get(index)!, bytes);
    memory.rebuild(present, wanted, bytes);
    const solved = new Map<number, Uint8Array>();
    for (const index of wanted) {
      const shard = layout.shards[index]!;
      const content = memory.shards[index]!.slice(0, shard.bytes);
      if (Buffer.compare(blake3(content), shard.id) !== 0)
        throw new RonError('integrity', 'a stripe does not fit together');
      solved.set(index, content);
    }
    return solved;
  }

  #memory(data_shards: number, parity_shards: number, bytes: number): Stripe {
    const shape = `${data_shards}+${parity_shards}`;
    let memory = this.#memories.get(shape);
    if (memory === undefined || memory.shard_bytes_max < bytes) {
      memory = new Stripe(data_shards, parity_shards, bytes);
    }
    // Whoever was not used for the longest time goes.
    this.#memories.delete(shape);
    this.#memories.set(shape, memory);
    const [oldest] = this.#memories.keys();
    if (this.#memories.size > MEMORIES_MAX) this.#memories.delete(oldest!);
    return memory;
  }
}

/** Also while what it knows is being written anew: it was durable before, and copies go only after it is durable again. */
const knows = (member: Member, id: Uint8Array): boolean => member.isCurrent && member.holds('shard', id);
