/** The announcer against an index that fails in every way, with a virtual clock. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER, RonError, sleep } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { formatAddress, type Address, type AnnounceDto, type AnnouncedDto } from '@ron/proto';
import { Announcer } from './announcer.ts';
import { ChangedObjects } from './changed-objects.ts';
import type { Position } from './object-walk.ts';
import type { ProvidedObjects } from './provided-objects.ts';

const SEEDS = 60;
const STEPS = 60;
/** Few addresses, a short queue and short listings, so that every case is frequent. */
const ADDRESSES = Array.from({ length: 12 }, (_, at) => formatAddress(Buffer.alloc(32, at * 20 + 1)));
const QUEUE_CAPACITY = 2;
const LISTED_MAX = 3;
const DELAY_MS = 60;

/** The objects of a node: a set of addresses, listed in order. */
class FakeStore implements ProvidedObjects {
  readonly present = new Set<Address>();
  readonly unreadable = new Set<Address>();
  isComplete = true;

  describe(addresses: readonly Address[]) {
    const present = addresses.filter((address) => this.present.has(address));
    const readable = present.filter((address) => !this.unreadable.has(address));
    return Promise.resolve({
      entries: readable.map((address) => ({ address, size: 1, media_type: 'text/plain' })),
      unreadable: present.filter((address) => this.unreadable.has(address)),
    });
  }

  async list(after: Position) {
    const from = after === undefined ? '' : formatAddress(after);
    const left = [...this.present].filter((address) => address > from).toSorted();
    const addresses = left.slice(0, LISTED_MAX);
    const next = left.length < LISTED_MAX ? undefined : Buffer.from(addresses.at(-1)!.slice(3), 'hex');
    // Objects change between the listing and the call.
    await sleep(DELAY_MS, NEVER, 'list');
    return { addresses, next, isComplete: this.isComplete };
  }
}

type Mode = 'ok' | 'refuses' | 'loses the answer' | 'applies late';

/** An index that holds the announced addresses. */
class FakeIndex {
  readonly announced = new Set<Address>();
  epoch = 0;
  mode: Mode = 'ok';
  quota = Infinity;
  #late: AnnounceDto | undefined;

  forgetAll(): void {
    this.announced.clear();
    this.epoch += 1;
  }

  async send(dto: AnnounceDto): Promise<AnnouncedDto> {
    await sleep(DELAY_MS, NEVER, 'send');
    this.#requireQuota(dto);
    // A call that timed out is executed at the latest before the next one.
    if (this.#late !== undefined) this.#apply(this.#late);
    this.#late = this.mode === 'applies late' ? dto : undefined;
    if (this.mode === 'ok' || this.mode === 'loses the answer') this.#apply(dto);
    await sleep(DELAY_MS, NEVER, 'answer');
    if (this.mode !== 'ok') throw new RonError('unreachable', 'no answer');
    return { epoch: String(this.epoch) };
  }

  /** As index: atomic, and counted with the withdrawals of the same call. */
  #requireQuota(dto: AnnounceDto): void {
    const before = [...this.announced];
    this.#apply(dto);
    const isOver = this.announced.size > this.quota && dto.entries.some(({ address }) => !before.includes(address));
    this.announced.clear();
    for (const address of before) this.announced.add(address);
    if (isOver) throw new RonError('storage_full', 'quota');
  }

  #apply({ entries, withdraw = [], range }: AnnounceDto): void {
    if (range !== undefined) {
      const { after, through } = range;
      for (const address of this.announced) {
        if (address > (after ?? '') && (through === null || address <= through)) this.announced.delete(address);
      }
    }
    for (const { address } of entries) this.announced.add(address);
    for (const address of withdraw) this.announced.delete(address);
  }
}

/** Runs announcers over one store and one index, one at a time. */
class Node {
  readonly store = new FakeStore();
  readonly index = new FakeIndex();
  #position: Position;
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();
  changed = new ChangedObjects(QUEUE_CAPACITY);
  announcer!: Announcer;
  reported = 0;

  constructor() {
    this.start();
  }

  start(): void {
    this.changed = new ChangedObjects(QUEUE_CAPACITY);
    this.#stop = new AbortController();
    this.announcer = new Announcer({
      objects: this.store,
      changed: this.changed,
      cursor: {
        position: this.#position,
        save: (position) => {
          this.#position = position;
          return Promise.resolve();
        },
      },
      send: (dto) => this.index.send(dto),
      read: (work, stopping) => work(stopping),
      onProblem: () => (this.reported += 1),
    });
    this.#running = this.announcer.run(this.#stop.signal).catch((error: unknown) => {
      if (!this.#stop.signal.aborted) throw error;
    });
  }

  async kill(clock: VirtualSched): Promise<void> {
    this.#stop.abort(new RonError('draining', 'killed'));
    // The call under way reaches the index.
    await clock.advance(10 * DELAY_MS);
    await this.#running;
  }

  put(address: Address): void {
    this.store.present.add(address);
    this.changed.note(address);
  }

  remove(address: Address): void {
    this.store.present.delete(address);
    this.changed.note(address);
  }
}

const sorted = (addresses: Iterable<Address>): Address[] => [...addresses].toSorted();

test('no object is forgotten and none stays, over overflow, lost answers, new epochs and restarts', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const clock = new VirtualSched();
    await clock.during(async () => {
      const random = randomFrom(seed);
      const node = new Node();
      for (let step = 0; step < STEPS; step++) await act(node, clock, random);
      node.index.mode = 'ok';
      node.store.isComplete = true;
      // A walk over 12 objects, after the pause of a failed call.
      await clock.advance(60_000);
      const { store, index, announcer, changed } = node;
      assert.deepEqual(sorted(index.announced), sorted(store.present), `seed ${seed}`);
      assert.deepEqual([announcer.isWalking, changed.depth], [false, 0], `seed ${seed}`);
      await node.kill(clock);
    });
  }
});

/** One random event. */
async function act(node: Node, clock: VirtualSched, random: () => number): Promise<void> {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
  const chance = random();
  if (chance < 0.35) return node.put(pick(ADDRESSES));
  if (chance < 0.55) return node.remove(pick(ADDRESSES));
  if (chance < 0.65) node.index.mode = pick<Mode>(['ok', 'ok', 'refuses', 'loses the answer', 'applies late']);
  else if (chance < 0.69) node.index.forgetAll();
  else if (chance < 0.73) {
    await node.kill(clock);
    node.start();
  } else await clock.advance(random() * 1500);
}

test('an outage is reported once, and not while a node starts', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    node.index.mode = 'refuses';
    node.put(ADDRESSES[0]!);
    await clock.advance(8000);
    assert.ok(node.announcer.failed_total > 0);
    assert.equal(node.reported, 0);
    await clock.advance(60_000);
    assert.equal(node.reported, 1);
    node.index.mode = 'ok';
    await clock.advance(10_000);
    assert.equal(node.announcer.problem, undefined);
    await node.kill(clock);
  });
});

test('a new object is announced within two seconds, even during a walk', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    for (const address of ADDRESSES) node.store.present.add(address);
    node.announcer.requestWalk();
    await clock.advance(1000);
    assert.ok(node.announcer.isWalking);
    const fresh = formatAddress(Buffer.alloc(32, 0xff));
    node.put(fresh);
    await clock.advance(2000);
    assert.ok(node.index.announced.has(fresh));
    await node.kill(clock);
  });
});

test('an incomplete listing withdraws nothing', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    node.put(ADDRESSES[0]!);
    await clock.advance(5000);
    // Its volume is absent, so the listing lacks it.
    node.store.isComplete = false;
    node.store.present.delete(ADDRESSES[0]!);
    node.announcer.requestWalk();
    await clock.advance(5000);
    assert.ok(node.index.announced.has(ADDRESSES[0]!));
    await node.kill(clock);
  });
});

test('an outage of the index is reported after ten seconds, until it ends', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    node.index.mode = 'refuses';
    await clock.advance(9000);
    assert.equal(node.announcer.problem, undefined);
    assert.ok(node.announcer.failed_total >= 5, `${node.announcer.failed_total} tries`);
    await clock.advance(4000);
    assert.match(node.announcer.problem ?? '', /index does not accept announcements: no answer/);
    node.index.mode = 'ok';
    await clock.advance(4000);
    assert.equal(node.announcer.problem, undefined);
    await node.kill(clock);
  });
});

/** Numbers in [0, 1) from a linear congruential generator. */
function randomFrom(seed: number): () => number {
  let state = seed * 2_654_435_761;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

test('withdrawals pass though the quota of index refuses new objects, and then make room', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    for (const address of ADDRESSES.slice(0, 6)) node.put(address);
    await clock.advance(10_000);
    node.index.quota = 6;
    for (const address of ADDRESSES.slice(6)) node.put(address);
    await clock.advance(10_000);
    assert.deepEqual(sorted(node.index.announced), sorted(ADDRESSES.slice(0, 6)));
    for (const address of ADDRESSES.slice(0, 6)) node.remove(address);
    await clock.advance(60_000);
    assert.deepEqual(sorted(node.index.announced), sorted(ADDRESSES.slice(6)));
    await node.kill(clock);
  });
});

test('an object that cannot be read now is not withdrawn, by a change or by a walk', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const node = new Node();
    const [first, second] = ADDRESSES as [Address, Address];
    node.put(first);
    node.put(second);
    await clock.advance(10_000);
    node.store.unreadable.add(first);
    node.put(first);
    node.announcer.requestWalk();
    await clock.advance(10_000);
    assert.deepEqual(sorted(node.index.announced), sorted([first, second]));
    await node.kill(clock);
  });
});
