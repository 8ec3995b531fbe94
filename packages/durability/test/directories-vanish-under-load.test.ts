/** Six directories, load on them, two are deleted under it: no read fails, no byte is wrong, and everything is made whole. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { test } from 'node:test';
import { Compactor, ObjectStore } from '@ron/cas';
import { TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import {
  Pacing,
  Planner,
  RepairQueue,
  RepairWorker,
  Striper,
  VolumeProber,
  directoryProbe,
  type Probe,
} from '../src/index.ts';
import { Directories } from '../src/testing/directories.ts';
import type { Fault, VolumeSet } from '../src/set/volume-set.ts';

const { signal } = new AbortController();
const SIX = ['a', 'b', 'c', 'd', 'e', 'f'];
const MIB = 1024 * 1024;
const RATE_BYTES_PER_S = 40 * MIB;
const BURST_BYTES = 1 * MIB;
const CLIENTS = 4;

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

async function put(store: ObjectStore, body: Buffer): Promise<Address> {
  const writer = store.writer();
  await writer.write(body, signal);
  return (await writer.finish({}, signal)).address;
}

async function check(store: ObjectStore, address: Address, body: Buffer): Promise<void> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is not found`);
  const parts: Buffer[] = [];
  for await (const batch of object.read(0, object.size, signal)) parts.push(Buffer.concat(batch));
  assert.ok(Buffer.concat(parts).equals(body), `${address} has wrong bytes`);
}

class Service {
  readonly set: VolumeSet;
  readonly store: ObjectStore;
  readonly queue = new RepairQueue();
  readonly pacing = new Pacing({ rate_bytes_per_s: RATE_BYTES_PER_S, burst_bytes: BURST_BYTES });
  readonly planner: Planner;
  readonly prober: VolumeProber;
  readonly #stop = new AbortController();
  readonly #tasks: Promise<void>[] = [];

  constructor(set: VolumeSet, probes: ReadonlyMap<string, Probe>) {
    this.set = set;
    this.store = new ObjectStore({ volume: set, cache_bytes: 0 });
    this.planner = new Planner({ set, queue: this.queue });
    this.prober = new VolumeProber({ set, probes });
    for (let index = 0; index < 4; index++) {
      const worker = new RepairWorker({ set, queue: this.queue, pacing: this.pacing });
      this.#tasks.push(worker.run({ stopping: this.#stop.signal, signal }));
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
  }
}

async function probesOf(directories: Directories): Promise<Map<string, Probe>> {
  const probes = new Map<string, Probe>();
  for (const name of SIX) probes.set(name, await directoryProbe(directories.dir(name)));
  return probes;
}

for (const [name, isStriped] of [
  ['three copies', false],
  ['stripes of 4+2', true],
] as const) {
  test(`two of six directories vanish under load, with ${name}`, async () => {
    using directories = new Directories();
    const faults: Fault[] = [];
    const init = isStriped ? { replication_factor: 2, lone_copies: 3 } : { replication_factor: 3 };
    await using set = await directories.open(SIX, { ...init, write_min: 2, onFault: (fault) => faults.push(fault) });
    const service = new Service(set, await probesOf(directories));
    const { store, planner, queue, pacing } = service;
    const objects = new Map<Address, Buffer>();
    for (let index = 0; index < 8; index++) {
      const body = randomBytes(65_536 * 8);
      objects.set(await put(store, body), body);
    }
    if (isStriped) {
      const pace = (): Promise<void> => Promise.resolve();
      const made = await new Striper({ set, data_shards: 4, parity_shards: 2, pace }).run(signal);
      assert.deepEqual(made, { objects: 8, stripes: 16, failed: 0, lone: 0 });
      const bucket = new TokenBucket('test', { rate_per_s: 1e12, burst: 2 ** 32 });
      await new Compactor({ store, uploads: undefined, live_ratio: 1.1, seal_bytes_min: 0, bucket }).run(signal);
    }

    // Readers and one writer all the time.
    const load = new AbortController();
    let reads = 0;
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      while (!load.signal.aborted) {
        for (const [address, body] of objects) {
          if (load.signal.aborted) break;
          await check(store, address, body);
          reads += 1;
          // Cached pages are read without waiting; requests arrive on sockets, one turn after the other.
          await turn();
        }
        if (client > 0) continue;
        const body = randomBytes(20_000);
        objects.set(await put(store, body), body);
      }
    });
    const began_ms = performance.now();
    for (const gone of ['b', 'e']) rmSync(directories.dir(gone), { recursive: true, force: true });
    await service.prober.probe();
    assert.deepEqual(
      set.views.filter((view) => view.status === 'lost').map((view) => view.name),
      ['b', 'e'],
    );
    let report = await planner.plan(signal);
    assert.ok(report.deficit > 20, `${report.deficit} are missing`);
    while (report.deficit > 0) {
      while (!queue.isIdle) await turn();
      report = await planner.plan(signal);
    }
    const took_s = (performance.now() - began_ms) / 1000;
    load.abort();
    await Promise.all(clients);
    await service.stop();
    assert.ok(reads > CLIENTS, 'there was load');
    assert.ok(pacing.taken_bytes_total <= RATE_BYTES_PER_S * took_s + BURST_BYTES, 'the pace was held');
    assert.ok(pacing.taken_bytes_total > 0);
    for (const [address, body] of objects) await check(store, address, body);
    assert.equal(report.copies_min >= 2, true);
  });
}
