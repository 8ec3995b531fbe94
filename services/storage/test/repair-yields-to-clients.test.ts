/** A repair that could take all of a slow disk leaves clients theirs: bodies of large objects and PUTs hardly get slower. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { bytesOf, eventually, holdsInARound, KIB, MIB, removeDir } from '@ron/testkit';
import { addressOf, type Json } from '@ron/testkit/service';
import { p95_ms, type Timing } from './latency.ts';
import { startService, type TestService } from './support.ts';

const DISK_BYTES_PER_S = 48 * MIB;
const BEFORE_MS = 4000;
const DURING_MS = 10_000;
/** Until the rate has come down. */
const YIELD_MS = 4000;
/** Measurement error of the median of a few half seconds, beyond the factor. */
const NOISE_MS = 6;
const FACTOR = 1.5;
/** The machine may be busy with other work, of which the control gets another share. */
const ROUNDS = 3;

/** All directories on one disk that moves so many bytes in a second, one call after the other. */
function slowDisk(): { fs: FileSystem; state: { isSlow: boolean } } {
  const state = { isSlow: false };
  let free_ms = 0;
  const moved = async (bytes: number): Promise<void> => {
    if (!state.isSlow) return;
    const now_ms = performance.now();
    free_ms = Math.max(free_ms, now_ms) + (bytes / DISK_BYTES_PER_S) * 1000;
    await new Promise((resolve) => setTimeout(resolve, free_ms - now_ms));
  };
  const slowed = (file: File): File => ({
    write: async (buffers, position) => {
      await moved(buffers.reduce((sum, each) => sum + each.length, 0));
      await file.write(buffers, position);
    },
    read: async (into, length, position) => {
      await moved(length);
      return await file.read(into, length, position);
    },
    sync: () => file.sync(),
    truncate: (bytes) => file.truncate(bytes),
    size: () => file.size(),
    close: () => file.close(),
  });
  const fs: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    create: async (path: string) => slowed(await realFileSystem.create(path)),
    open: async (path: string, access: 'read' | 'write') => slowed(await realFileSystem.open(path, access)),
  });
  return { fs, state };
}

async function timed(into: Timing[], work: () => Promise<void>): Promise<void> {
  const at_ms = performance.now();
  await work();
  into.push({ at_ms, took_ms: performance.now() - at_ms });
}

const rest = (wait_ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, wait_ms));

const FLAGS = [
  '--durability.replication_factor=2',
  '--durability.repair_pacing=64MiB/s',
  '--durability.repair_workers=8',
  '--storage.cache_bytes=1MiB',
  '--storage.fast_path=false',
];

/** A storage on a slow disk with one client that reads large objects and one that writes small ones, until it is stopped. */
class Loaded implements AsyncDisposable {
  readonly service: TestService;
  readonly gets: Timing[] = [];
  readonly puts: Timing[] = [];
  readonly #large: readonly Buffer[];
  readonly #state: { isSlow: boolean };
  #clients: Promise<void>[] = [];
  #isOver = false;

  private constructor(service: TestService, large: readonly Buffer[], state: { isSlow: boolean }) {
    this.service = service;
    this.#large = large;
    this.#state = state;
  }

  static async start(objects: number): Promise<Loaded> {
    const { fs, state } = slowDisk();
    const service = await startService({ dirs: ['a', 'b', 'c', 'd'], flags: FLAGS, fs });
    const large = Array.from({ length: objects }, (_, index) => bytesOf(2 * MIB, index + 1));
    for (const bytes of large) await service.put(bytes);
    return new Loaded(service, large, state);
  }

  load(): void {
    this.#state.isSlow = true;
    this.#clients = [this.#read(), this.#write()];
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
    this.#state.isSlow = false;
  }

  async #read(): Promise<void> {
    for (let turn = 0; !this.#isOver; turn++) {
      const bytes = this.#large[(turn * 7) % this.#large.length]!;
      await timed(this.gets, async () => {
        const reply = await this.service.send('GET', `/o/${addressOf(bytes)}`);
        assert.ok(reply.status === 200 && reply.body.equals(bytes), reply.text.slice(0, 200));
      });
      await rest(30);
    }
  }

  async #write(): Promise<void> {
    for (let turn = 0; !this.#isOver; turn++) {
      await timed(this.puts, async () => void (await this.service.put(bytesOf(48 * KIB, 10_000 + turn))));
      await rest(20);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service[Symbol.asyncDispose]();
  }
}

test('PUTs and the bodies of large GETs keep their pace while a repair could saturate the disk', (t) =>
  holdsInARound(ROUNDS, () => measureRepair((message) => t.diagnostic(message))));

async function measureRepair(report: (message: string) => void): Promise<string | undefined> {
  await using loaded = await Loaded.start(120);
  // Another one that nothing happens to, in the same seconds: if it gets slower, that is the machine.
  await using control = await Loaded.start(20);
  const { service } = loaded;
  loaded.load();
  control.load();
  const began_ms = performance.now();
  await rest(BEFORE_MS);
  const lost_ms = performance.now();
  await removeDir(join(service.dir, 'b'));
  const status = async (): Promise<Json> => await service.ask('GET', '/admin/repair');
  await eventually('a repair runs', async () => (await status()).inflight > 0);
  const yielded_ms = performance.now() + YIELD_MS;
  await rest(YIELD_MS + DURING_MS);
  const { queued, inflight, allowed_bytes_per_s } = await status();
  const ended_ms = performance.now();
  await Promise.all([loaded.stop(), control.stop()]);
  assert.ok(queued + inflight > 0, 'the repair was over too soon to be judged');
  const slower: string[] = [];
  for (const what of ['gets', 'puts'] as const) {
    const before_ms = p95_ms(loaded[what], began_ms, lost_ms);
    const during_ms = p95_ms(loaded[what], yielded_ms, ended_ms);
    const machine = p95_ms(control[what], yielded_ms, ended_ms) / p95_ms(control[what], began_ms, lost_ms);
    report(
      `${what}: p95 ${before_ms.toFixed(1)} ms before, ${during_ms.toFixed(1)} ms during, on a machine ` +
        `${machine.toFixed(1)} times as slow; repair at ${allowed_bytes_per_s} B/s`,
    );
    const limit_ms = FACTOR * Math.max(1, machine) * before_ms + NOISE_MS;
    if (during_ms > limit_ms) slower.push(`${what}: p95 ${before_ms} ms before, ${during_ms} ms during`);
  }
  return slower.length === 0 ? undefined : slower.join(', ');
}
