import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Address } from '@ron/proto';
import { nameKey, providerKey } from '../keys.ts';
import { MemoryObjects } from '../testing/memory-objects.ts';
import { addressOf, World } from '../testing/world.ts';
import { INTERVAL_MS, PENDING_MAX } from './provide-loop.ts';
import { Providing } from './providing.ts';

interface Setup {
  readonly world: World;
  readonly store: MemoryObjects;
  readonly counts: { closest: number };
  readonly warnings: unknown[];
  readonly start: (isProvider?: boolean) => Providing;
  /** Moves the clock until the condition holds. */
  readonly until: (condition: () => boolean, within_ms?: number) => Promise<void>;
  /** Ends the running task as a crash does: nothing is saved. */
  readonly crash: () => Promise<void>;
}

/** Runs `use` under a virtual clock with a network, a store and the task. */
async function setUp(nodes: number, use: (setup: Setup) => Promise<void>): Promise<void> {
  const counts = { closest: 0 };
  const world = new World({ nodes, observer: { onLookup: (kind) => void (kind === 'closest' && counts.closest++) } });
  const store = new MemoryObjects();
  const warnings: unknown[] = [];
  let stopping = new AbortController();
  let running: Promise<void> = Promise.resolve();
  const crash = async (): Promise<void> => {
    stopping.abort(new Error('crash'));
    await running;
  };
  const setup: Setup = {
    world,
    store,
    counts,
    warnings,
    crash,
    start: (isProvider = true) => {
      stopping = new AbortController();
      const warn = (error: unknown): void => void warnings.push(error);
      const providing = new Providing({ dht: world.driver, store, warn, isProvider });
      running = providing.run(stopping.signal);
      return providing;
    },
    until: async (condition, within_ms = 60_000) => {
      await world.clock.settle();
      for (let at_ms = 0; !condition(); at_ms += 10) {
        assert.ok(at_ms < within_ms, 'the condition did not hold in time');
        await world.clock.advance(10);
      }
    },
  };
  await world.clock.during(async () => {
    try {
      await use(setup);
    } finally {
      await crash();
    }
  });
}

/** Of the 20 closest peers, how many have the record. */
function copiesOf(world: World, address: Address): number {
  const key = providerKey(address);
  const closest = world.network.closestTo(key, 21).filter((node) => node !== world.node);
  return closest.slice(0, 20).filter((node) => node.providersOf(key).some(({ id }) => id === world.node.self)).length;
}

const isSwept = (store: MemoryObjects): boolean => store.cursors.get('provider_sweep')?.[8] === 1;
const someObjects = (count: number, name = 'object'): Address[] =>
  Array.from({ length: count }, (_, at) => addressOf(`${name} ${at}`));

test('a sweep provides all objects with few lookups', () =>
  setUp(100, async ({ world, store, counts, start, until }) => {
    for (const address of someObjects(400)) store.addresses.add(address);
    start();
    await until(() => isSwept(store));
    const copies = Array.from(store.addresses, (address) => copiesOf(world, address)).toSorted((a, b) => a - b);
    assert.ok(copies[0]! >= 12, `an object has only ${copies[0]} of 20 copies`);
    assert.ok(copies[200]! >= 19, `half of the objects have less than ${copies[200]} copies`);
    assert.ok(counts.closest <= 40, `${counts.closest} lookups for 400 objects`);
    const streams = world.network.sent.filter(({ op }) => op === 'addProvider').length;
    assert.ok(streams <= 400, `${streams} streams for 8000 records`);
  }));

test('a new object is provided within 2 s, a withdrawn one is not', () =>
  setUp(10, async ({ world, store, start, until }) => {
    const providing = start();
    await until(() => isSwept(store));
    const [added, withdrawn] = [addressOf('new'), addressOf('withdrawn')];
    store.addresses.add(added);
    providing.announced([withdrawn, added]);
    await until(() => copiesOf(world, added) === 10, 2000);
    assert.equal(copiesOf(world, withdrawn), 0);
  }));

test('objects that were announced while the database failed are provided once it answers again', () =>
  setUp(10, async ({ world, store, warnings, start, until }) => {
    const providing = start();
    await until(() => isSwept(store));
    const objects = someObjects(3);
    for (const address of objects) store.addresses.add(address);
    const read = store.object.bind(store);
    let reads = 0;
    store.object = (address) => {
      // The mark of pending objects is saved first; only the second read fails.
      if (++reads === 2) throw new Error('the database does not answer');
      return read(address);
    };
    providing.announced(objects);
    await until(() => warnings.length === 1);
    assert.equal(providing.pending, 3);
    await until(() => objects.every((address) => copiesOf(world, address) === 10));
  }));

test('a node whose storage others cannot read provides no objects', () =>
  setUp(3, async ({ world, store, start }) => {
    store.addresses.add(addressOf('private'));
    const providing = start(false);
    providing.announced([addressOf('private')]);
    await world.clock.advance(60_000);
    assert.equal(providing.pending, 0);
    assert.equal(world.network.sent.filter(({ op }) => op === 'addProvider').length, 0);
  }));

test('objects beyond the queue are left to another sweep', () =>
  setUp(3, async ({ world, store, start, until }) => {
    const providing = start();
    await until(() => isSwept(store));
    const objects = someObjects(PENDING_MAX + 50);
    for (const address of objects) store.addresses.add(address);
    providing.announced(objects);
    assert.equal(providing.pending, PENDING_MAX);
    await until(() => objects.slice(-50).every((address) => copiesOf(world, address) === 3));
  }));

test('a sweep continues where a crash interrupted it', () =>
  setUp(20, async ({ world, store, start, until, crash }) => {
    for (const address of someObjects(1200)) store.addresses.add(address);
    start();
    await until(() => (store.cursors.get('provider_sweep')?.length ?? 0) > 9);
    await crash();
    const order = await store.objects(undefined, 1200);
    const done = order.findIndex(({ address }) => copiesOf(world, address) === 0);
    assert.ok(done >= 256 && done < 1200, `${done} objects were provided`);
    for (const { address } of order.slice(0, 256)) {
      for (const node of world.nodes) node.dropProviders(providerKey(address));
    }
    start();
    await until(() => isSwept(store));
    assert.ok(
      order.slice(512).every(({ address }) => copiesOf(world, address) > 0),
      'the rest was provided',
    );
    assert.ok(
      order.slice(0, 256).every(({ address }) => copiesOf(world, address) === 0),
      'the first batch was not provided again',
    );
  }));

test('items that were pending at a crash are found by a sweep', () =>
  setUp(3, async ({ world, store, start, until, crash }) => {
    const providing = start();
    await until(() => isSwept(store));
    for (const node of world.nodes) node.behavior = 'silent';
    const address = addressOf('pending');
    store.addresses.add(address);
    providing.announced([address]);
    await until(() => store.cursors.has('provider_sweep_pending'));
    await crash();
    for (const node of world.nodes) node.behavior = 'normal';
    start();
    await until(() => copiesOf(world, address) === 3);
    await until(() => !store.cursors.has('provider_sweep_pending'));
  }));

test('a sweep begins every 22 h, after an interrupted one that is too old, and after a jump of the clock', () =>
  setUp(3, async ({ world, store, start, until, crash }) => {
    const address = addressOf('old');
    store.addresses.add(address);
    const drop = (): void => world.nodes.forEach((node) => node.dropProviders(providerKey(address)));
    start();
    await until(() => isSwept(store) && copiesOf(world, address) === 3);
    drop();
    await world.clock.advance(INTERVAL_MS - 3_600_000);
    assert.equal(copiesOf(world, address), 0);
    await world.clock.advance(3_600_000);
    await until(() => copiesOf(world, address) === 3);
    for (const age_ms of [INTERVAL_MS + 1, -3_600_000]) {
      await crash();
      drop();
      const cursor = Buffer.alloc(9 + 32, 0xff);
      cursor.writeBigUInt64BE(BigInt(world.clock.wall_ms() - age_ms));
      cursor[8] = 0;
      store.cursors.set('provider_sweep', cursor);
      start();
      await until(() => copiesOf(world, address) === 3);
    }
  }));

test('without peers, and with a database that fails, the sweep waits', () =>
  setUp(0, async ({ world, store, start, until, warnings }) => {
    const address = addressOf('waits');
    store.addresses.add(address);
    start();
    await world.clock.advance(10_000);
    assert.equal(world.network.sent.length, 0);
    store.failure = new Error('the disk hangs');
    world.network.grow(2);
    await until(() => warnings.length > 0);
    store.failure = undefined;
    await until(() => copiesOf(world, address) === 2);
  }));

test('peers that refuse everything do not stop the sweep', () =>
  setUp(3, async ({ world, store, start, until }) => {
    const objects = someObjects(300);
    for (const address of objects) store.addresses.add(address);
    for (const node of world.nodes) node.behavior = 'garbage';
    start();
    await world.clock.advance(60_000);
    for (const node of world.nodes) node.behavior = 'normal';
    await until(() => objects.every((address) => copiesOf(world, address) === 3), 120_000);
  }));

test('a new name is published, and all own names before their records age out', () =>
  setUp(5, async ({ world, store, start, until }) => {
    const nameOf = (label: string) => {
      const key = 'ab'.repeat(32);
      const base = { key, label, seq: 1, not_after: 2e9, isOwn: true, rival: undefined, dropped: 0 };
      return { ...base, record: Buffer.from(label), signature: Buffer.alloc(64, 1), hash: Buffer.alloc(32) };
    };
    const isStored = (label: string): boolean => {
      const value = world.nodes[0]!.valueOf(nameKey('ab'.repeat(32), label));
      return value !== undefined && Buffer.from(value).equals(Buffer.concat([Buffer.alloc(64, 1), Buffer.from(label)]));
    };
    const labels = Array.from({ length: 30 }, (_, at) => `docs/${at}`);
    store.own.push(...labels.map(nameOf));
    const providing = start();
    await until(() => labels.every(isStored));
    // The log has it before the database.
    providing.published(nameOf('new'));
    await until(() => isStored('new'), 2000);
    store.own.push(nameOf('new'));
    for (const node of world.nodes) node.dropValues();
    await world.clock.advance(INTERVAL_MS);
    await until(() => [...labels, 'new'].every(isStored));
  }));
