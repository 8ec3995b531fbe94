/**
 * Erasure-coded stripes: k contents and m parity shards, each on another volume.
 *
 * Contract: any k shards rebuild the others, and a rebuilt content matches its hash. A stripe is recorded on every volume
 * with its parity, so as long as a lost content can be rebuilt, one of those volumes is left.
 * Bound: memory for the shards of one stripe, for each of `MEMORIES_MAX` shapes. A rebuild reads k shards at a time.
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
import { isRonError, KeyedMutex, LATE, RonError, sched, withTimeout } from '@ron/kernel';
import { Stripe } from '@ron/simd';
import { mergeInventories } from '../repair/inventories.ts';
import type { Member } from '../membership/member.ts';
import { withVolumeTimeout } from '../set/volume-timeout.ts';
import type { Rescue } from '../set/read-many.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** Nearly all stripes have one shape; the remainders of objects have others. */
const MEMORIES_MAX = 2;
/** Above this number, every content counts as one that fits no stripe. */
const LONE_MAX = 2 ** 22;

export interface FoundStripe {
  readonly id: Uint8Array;
  readonly layout: StripeLayout;
}

export interface WalkedStripe {
  readonly id: Uint8Array;
  readonly layout: StripeLayout | undefined;
}

/** Shards that were read, and those that were missing. */
interface Gathered {
  readonly shards: Map<number, Uint8Array>;
  readonly missing: number[];
}

/** A shard that a volume holds but could not deliver. */
const UNREAD = Symbol('unread');
type ShardRead = Uint8Array | typeof UNREAD | undefined;

/** Concurrent changes of stripes. Each belongs to a repair worker, of which there are far fewer. */
const CHANGES_MAX = 1024;
/** How long to wait for a shard while others could replace it. */
const SHARD_LAG_MS = 1000;

export class Stripes {
  readonly #set: VolumeSet;
  readonly #memories = new Map<string, Stripe>();
  /** Stripes that are being dissolved: no read may rely on them. */
  readonly #ending = new Set<string>();
  readonly #mutex = new KeyedMutex('stripes', { keys_max: CHANGES_MAX, waiters_max: CHANGES_MAX });
  /** Contents for which the striper found no stripe: they have copies. */
  lone = this.emptyLone();

  constructor(set: VolumeSet) {
    this.#set = set;
  }

  /** Whether a stripe can rebuild it, as far as is known without a read. */
  protects(id: Uint8Array): boolean {
    return !this.#ending.has(chunkKey(id)) && this.#set.members.some((member) => knows(member, id));
  }

  emptyLone(): IdSet {
    return new IdSet({ ids_max: LONE_MAX });
  }

  /**
   * Whether it counts as stored because a stripe protects it: the stripe is recorded on as many volumes as copies are
   * required, or on all that should record it.
   */
  secures(id: Uint8Array): boolean {
    if (this.#ending.has(chunkKey(id))) return false;
    const needed = Math.min(this.#set.write_min, Math.max(1, this.#set.lone_copies - 1));
    const known = this.#set.members.filter((member) => member.isCurrent && member.holdsDurably('shard', id));
    return known.length >= needed;
  }

  /** Changes of the places of a stripe's shards run one at a time: two concurrent ones could choose the same place. */
  async change<T>(id: Uint8Array, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return await this.#mutex.run(chunkKey(id), signal, work);
  }

  /** The stripe that a content or parity shard belongs to. */
  async find(id: Uint8Array, signal: AbortSignal): Promise<StripeLayout | undefined> {
    // Rebuilt contents are verified, so stale volumes may be read too, after current ones.
    const current = this.#set.members.filter((member) => knows(member, id));
    const stale = this.#set.members.filter((member) => !member.isCurrent && member.holds('shard', id));
    const late: Promise<StripeLayout | undefined>[] = [];
    for (const member of [...current, ...stale]) {
      const reading = this.#read(member, 'shard', id, signal);
      const layout = await withTimeout(reading, SHARD_LAG_MS);
      if (layout === LATE) late.push(reading);
      else if (layout !== undefined) return layout;
    }
    for (const reading of late) {
      const layout = await reading;
      if (layout !== undefined) return layout;
    }
    return undefined;
  }

  /**
   * Rebuilds a content that no volume holds; undefined when it is in no stripe. Throws `integrity` when too few shards are
   * left.
   */
  async rebuild(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const layout = await this.find(id, signal);
    if (layout === undefined) return undefined;
    const wanted = layout.shards.findIndex((shard) => Buffer.compare(shard.id, id) === 0);
    const { shards } = await this.#gather(layout, new Set([wanted]), signal);
    return this.#solve(layout, shards, [wanted]).get(wanted);
  }

  /** Rebuilds a content together with the others of its stripe. */
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

  /** Computes `parity` from k contents. */
  encode(contents: readonly Uint8Array[], parity_shards: number): Uint8Array[] {
    const bytes = Math.max(...contents.map((content) => content.length));
    const memory = this.#memory(contents.length, parity_shards, bytes);
    for (const [index, content] of contents.entries()) memory.set(index, content, bytes);
    memory.encode(bytes);
    return memory.shards.slice(contents.length).map((shard) => shard.slice(0, bytes));
  }

  /**
   * Dissolves a stripe: from this step on no read relies on it. Durable once it resolves; on failure the stripe stays.
   * `not_ready` while a volume is away, which may need the stripe.
   */
  async end(stripe: FoundStripe, signal: AbortSignal): Promise<void> {
    const { incomplete } = this.#set;
    if (incomplete !== undefined) throw notComplete(`a stripe cannot be given up: ${incomplete}`);
    const keys = stripe.layout.shards.map((shard) => chunkKey(shard.id));
    for (const key of keys) this.#ending.add(key);
    try {
      const knowing = this.#set.members.filter((member) => member.holds('stripe', stripe.id));
      const record = { type: RecordType.unstripe, id: stripe.id, payload: encodeStripe(stripe.layout) };
      const writes = await Promise.allSettled(
        knowing.map((member) => withVolumeTimeout(member.write([record], signal))),
      );
      const failed = writes.find((result) => result.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
    } finally {
      for (const key of keys) this.#ending.delete(key);
    }
  }

  /**
   * Dissolves a stripe of an unknown code, which protects nothing. False when it is another stripe, or a volume failed to
   * write it.
   */
  async endRetired(id: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const knowing = this.#set.members.filter((member) => member.holds('stripe', id) && member.isWritable);
    const ended = knowing.map(async (member) => {
      const record = await withVolumeTimeout(member.volume.get('stripe', id, signal));
      if (record === undefined || !isRetiredStripe(record.payload)) return false;
      await withVolumeTimeout(member.write([{ type: RecordType.unstripe, id, payload: record.payload }], signal));
      return true;
    });
    const results = await Promise.all(ended.map((each) => each.catch(() => false)));
    signal.throwIfAborted();
    return results.length > 0 && results.every(Boolean);
  }

  /** The layouts of a stripe that volumes have recorded. Those that cannot be read are left out. */
  async views(id: Uint8Array, signal: AbortSignal): Promise<Map<Member, StripeLayout>> {
    const views = new Map<Member, StripeLayout>();
    for (const member of this.#set.members.filter((each) => each.holds('stripe', id))) {
      const layout = await this.#read(member, 'stripe', id, signal);
      if (layout !== undefined) views.set(member, layout);
    }
    return views;
  }

  /** Visits every stripe once; without a layout if no volume could read it. */
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
   * Reads shards until there are k, data first, never one of `without`. A slow shard is awaited only while there are too few
   * others.
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
      const reads = await Promise.all(readings.map((reading) => withTimeout(reading, SHARD_LAG_MS)));
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
    // Shards that could not be read now, or are on a volume that is away, may be readable later.
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

  /** Rebuilds the shards `wanted` from k others, in one step, and verifies them. */
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
    // Evicts the least recently used.
    this.#memories.delete(shape);
    this.#memories.set(shape, memory);
    const [oldest] = this.#memories.keys();
    if (this.#memories.size > MEMORIES_MAX) this.#memories.delete(oldest!);
    return memory;
  }
}

/**
 * True even while its record is being rewritten: it was durable before, and copies are removed only once it is durable again.
 */
const knows = (member: Member, id: Uint8Array): boolean => member.isCurrent && member.holds('shard', id);
