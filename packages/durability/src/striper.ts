/**
 * Turns copies into stripes: k chunks of an object get m parity shards, each on another volume, and then need no copies.
 *
 * Promise: it works on objects that were acknowledged, behind everybody's back. A stripe counts when all its shards are
 * durable and have been read back from where they lie; copies are released after that, by the next compaction. What
 * breaks in between leaves copies as they were, and garbage. Objects of one record stay as they are, and so do the
 * chunks that do not fill a stripe.
 * Bound: one stripe at a time, one page of a manifest. What it reads and writes is paced. Cancellation: by the signal, at any
 * wait.
 */
import { blake3 } from '@napi-rs/blake-hash';
import {
  chunkKey,
  encodeStripe,
  parseManifest,
  parsePage,
  RecordType,
  stripeId,
  type NewRecord,
  type StripeLayout,
} from '@ron/cas';
import { assert, RonError, sched } from '@ron/kernel';
import { chooseHomes } from './homes.ts';
import type { Member } from './member.ts';
import { patiently } from './patience.ts';
import type { VolumeSet } from './volume-set.ts';

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
}

interface Shard {
  readonly id: Uint8Array;
  readonly type: number;
  readonly payload: Uint8Array;
}

const LIST_COUNT = 256;

export class Striper {
  readonly data_shards: number;
  readonly parity_shards: number;
  readonly #set: VolumeSet;
  readonly #pace: StriperInit['pace'];
  #report: StriperReport = { objects: 0, stripes: 0, failed: 0 };
  #isRunning = false;

  constructor(init: StriperInit) {
    this.#set = init.set;
    this.#pace = init.pace;
    this.data_shards = init.data_shards ?? 6;
    this.parity_shards = init.parity_shards ?? 3;
    assert(this.data_shards >= 1 && this.parity_shards >= 1, 'a stripe has data and parity');
  }

  /** How far the run under way has come, or what the last one did. */
  get report(): StriperReport {
    return this.#report;
  }

  /** Why no stripes can be made now. */
  get problem(): string | undefined {
    const needed = this.data_shards + this.parity_shards;
    const count = this.#set.placement.places.filter((member) => member.takesRecords).length;
    return count >= needed ? undefined : `${count} volumes take records, a stripe needs ${needed}`;
  }

  /** Goes through all objects. */
  async run(signal: AbortSignal): Promise<StriperReport> {
    if (this.#isRunning) throw new RonError('conflict', 'stripes are being made already');
    this.#isRunning = true;
    this.#report = { objects: 0, stripes: 0, failed: 0 };
    try {
      let after: Uint8Array | undefined;
      do {
        const listed = await this.#set.inventory('object', after, LIST_COUNT);
        for (const { id, type } of listed) {
          signal.throwIfAborted();
          if (this.problem !== undefined) return this.#report;
          // Where there is nothing to do nothing is paced.
          await sched.pause('stripes.make');
          if (type === RecordType.manifest) await this.#stripeObject(id, signal);
          this.#count('objects');
        }
        after = listed.at(-1)?.id;
      } while (after !== undefined);
      return this.#report;
    } finally {
      this.#isRunning = false;
    }
  }

  async #stripeObject(hash: Uint8Array, signal: AbortSignal): Promise<void> {
    try {
      const record = await this.#set.get('object', hash, signal);
      if (record?.type !== RecordType.manifest) return;
      const manifest = parseManifest(record.payload, hash);
      for (const [index, page] of manifest.pages.entries()) {
        const bytes = (await this.#set.get('content', page.id, signal))?.payload;
        if (bytes === undefined) return;
        const ids = parsePage(bytes, manifest, index, hash).map((entry) => entry.id);
        await this.#stripePage(ids, signal);
      }
    } catch (error) {
      // A manifest that cannot be read is the business of whoever repairs it.
      signal.throwIfAborted();
      this.#count('failed');
      void error;
    }
  }

  async #stripePage(ids: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const group = new Map<string, Uint8Array>();
    for (const id of ids) {
      if (this.#set.stripes.protects(id) || !this.#set.isDurable('content', id)) continue;
      group.set(chunkKey(id), id);
      if (group.size < this.data_shards) continue;
      await this.#try([...group.values()], signal);
      group.clear();
    }
  }

  async #try(ids: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    try {
      await this.make(ids, signal);
      this.#count('stripes');
    } catch {
      signal.throwIfAborted();
      this.#count('failed');
    }
  }

  #count(what: keyof StriperReport): void {
    this.#report = { ...this.#report, [what]: this.#report[what] + 1 };
  }

  /** Makes a stripe of k contents. It counts when this resolves. */
  async make(ids: readonly Uint8Array[], signal: AbortSignal): Promise<StripeLayout> {
    assert(ids.length === this.data_shards, `a stripe has ${this.data_shards} contents`);
    const held: string[] = [];
    const hold = (id: Uint8Array): void => {
      this.#set.holds.take(chunkKey(id));
      held.push(chunkKey(id));
    };
    try {
      ids.forEach(hold);
      const data = await Promise.all(ids.map((id) => this.#load(id, signal)));
      const shards = [...data, ...this.#parityOf(data)];
      shards.slice(ids.length).forEach((shard) => hold(shard.id));
      return await this.#store(shards, signal);
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

  async #store(shards: readonly Shard[], signal: AbortSignal): Promise<StripeLayout> {
    const homes = chooseHomes({
      placement: this.#set.placement,
      ids: shards.map((shard) => shard.id),
      holdersOf: (id) => this.#set.members.filter((member) => member.holdsDurably('content', id)),
    });
    await Promise.all(shards.map((shard, index) => this.#keep(shard, homes[index]!, signal)));
    const layout = {
      data_shards: this.data_shards,
      shards: shards.map(({ id, payload }, index) => ({ id, bytes: payload.length, home: homes[index]!.name })),
    };
    await this.#announce(layout, homes.slice(this.data_shards), signal);
    return layout;
  }

  /** A shard is where it belongs, durable, and has been read back. */
  async #keep(shard: Shard, home: Member, signal: AbortSignal): Promise<void> {
    if (!home.holdsDurably('content', shard.id)) {
      await this.#pace(shard.payload.length, signal);
      await patiently(home.write([shard], signal));
    }
    await this.#pace(shard.payload.length, signal);
    const record = await patiently(home.volume.get('content', shard.id, signal));
    if (record === undefined) throw new RonError('integrity', `a shard on ${home.name} could not be read back`);
  }

  /** All or none: a stripe that only some know would not survive the loss that it is there for. */
  async #announce(layout: StripeLayout, homes: readonly Member[], signal: AbortSignal): Promise<void> {
    const id = stripeId(layout.shards);
    const record: NewRecord = { type: RecordType.stripe, id, payload: encodeStripe(layout) };
    const results = await Promise.allSettled(homes.map((home) => home.write([record], signal)));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed === undefined) return;
    await this.#set.stripes.end({ id, layout }, signal);
    throw failed.reason;
  }
}
