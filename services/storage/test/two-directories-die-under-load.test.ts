/**
 * Six directories with three copies, clients that read and write all the time, and two directories deleted under them: no
 * read fails, no byte is wrong, everything gets its copies back, within the byte rate, and reads hardly notice.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, MIB, tempDir, removeDir } from '@ron/testkit';
import { addressOf, authorizationFrom, type Json, type ServiceProcess } from '@ron/testkit/service';
import { p95_ms, type Timing } from './latency.ts';
import { keysIn, startProcess } from './process.ts';

const SIX = ['a', 'b', 'c', 'd', 'e', 'f'];
const READERS = 4;
const RATE_BYTES_PER_S = 12 * MIB;
const BURST_BYTES = 4 * MIB;
/** Calm time to compare with. */
const BEFORE_MS = 3000;
const WHOLE_WITHIN_MS = 60_000;
/** Measurement error of the median of a few half seconds, beyond twice the time before. */
const NOISE_MS = 10;

/** Clients that never stop, each on a connection of its own. */
class Load {
  readonly objects: { readonly address: string; readonly bytes: Buffer }[] = [];
  readonly reads: Timing[] = [];
  readonly problems: string[] = [];
  readonly #storage: ServiceProcess;
  readonly #headers: { authorization: string };
  readonly #agent = new Agent({ keepAlive: true });
  readonly #clients: Promise<void>[] = [];
  #isOver = false;

  constructor(storage: ServiceProcess, headers: { authorization: string }) {
    this.#storage = storage;
    this.#headers = headers;
  }

  async put(bytes: Buffer): Promise<void> {
    const address = addressOf(bytes);
    const { status, body } = await this.#send('PUT', `/o/${address}`, bytes);
    if (status === 201) this.objects.push({ address, bytes });
    else this.problems.push(`PUT ${status} ${body.toString()}`);
  }

  start(): void {
    for (let client = 0; client < READERS; client++) this.#clients.push(this.#read(client));
    this.#clients.push(this.#write());
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
    this.#agent.destroy();
  }

  async check({ address, bytes }: { address: string; bytes: Buffer }): Promise<void> {
    const { status, body } = await this.#send('GET', `/o/${address}`);
    if (status !== 200) this.problems.push(`GET ${status} ${body.toString().slice(0, 300)}`);
    else if (!body.equals(bytes)) this.problems.push(`${address} has wrong bytes`);
  }

  p95_ms(from_ms: number, to_ms: number): number {
    return p95_ms(this.reads, from_ms, to_ms);
  }

  async #read(client: number): Promise<void> {
    for (let turn = client; !this.#isOver; turn += READERS) {
      const began_ms = performance.now();
      await this.check(this.objects[(turn * 7) % this.objects.length]!);
      this.reads.push({ at_ms: began_ms, took_ms: performance.now() - began_ms });
    }
  }

  async #write(): Promise<void> {
    for (let turn = 0; !this.#isOver; turn++) {
      await this.put(bytesOf(turn % 4 === 0 ? 150 * KIB : 9000, 10_000 + turn));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async #send(method: string, path: string, body?: Buffer): Promise<{ status: number; body: Buffer }> {
    const req = request(`${this.#storage.url}${path}`, { method, agent: this.#agent, headers: this.#headers });
    req.end(body);
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    const parts: Buffer[] = [];
    for await (const part of res) parts.push(part as Buffer);
    return { status: res.statusCode!, body: Buffer.concat(parts) };
  }
}

test('two of six directories are deleted under load', async (t) => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  await using storage = await startProcess({
    flags: [
      '--server.bind=127.0.0.1:0',
      `--data_dirs=${SIX.map((name) => join(temp.path, name)).join(',')}`,
      `--auth.key_file=${keysIn(temp.path)}`,
      '--durability.replication_factor=3',
      '--durability.write_min=2',
      '--durability.repair_pacing=12MiB/s',
      '--storage.cache_bytes=1MiB',
      '--storage.fast_path=false',
    ],
  });
  // An unaffected storage in the same seconds: its slowdown is due to the machine.
  await using calm = await startProcess({
    flags: [
      '--server.bind=127.0.0.1:0',
      `--data_dirs=${join(temp.path, 'calm')}`,
      `--auth.key_file=${keysIn(temp.path)}`,
      '--storage.cache_bytes=1MiB',
      '--storage.fast_path=false',
    ],
  });
  const control = new Load(calm, headers);
  for (let index = 0; index < 20; index++) await control.put(bytesOf(index % 2 === 0 ? 256 * KIB : 8000, index + 1));
  const status = async (): Promise<Json> => JSON.parse((await storage.send('GET', '/admin/repair', { headers })).text);
  const load = new Load(storage, headers);
  for (let index = 0; index < 60; index++) await load.put(bytesOf(index % 2 === 0 ? 256 * KIB : 8000, index + 1));
  await eventually('the first inventory shows nothing missing', async () => (await status()).is_complete);

  load.start();
  control.start();
  const began_ms = performance.now();
  await new Promise((resolve) => setTimeout(resolve, BEFORE_MS));

  const deleted_ms = performance.now();
  const taken: { at_ms: number; bytes: number }[] = [];
  const sample = async (): Promise<Json> => {
    const asked_ms = performance.now();
    const now = await status();
    taken.push({ at_ms: asked_ms, bytes: now.bytes_total });
    return now;
  };
  await sample();
  for (const name of ['b', 'e']) await removeDir(join(temp.path, name));
  let deficit_max = 0;
  let repaired_ms = 0;
  for (let isWhole = false; !isWhole;) {
    const now = await sample();
    deficit_max = Math.max(deficit_max, now.deficit);
    repaired_ms = performance.now();
    isWhole = now.problems.length === 2 && deficit_max > 0 && now.deficit === 0 && !now.is_planning;
    assert.ok(repaired_ms - deleted_ms < WHOLE_WITHIN_MS, `${now.deficit} are still missing`);
  }
  await load.stop();
  await control.stop();
  for (const object of load.objects) await load.check(object);

  assert.deepEqual(load.problems, [], 'no read failed, no write failed, no byte was wrong');
  assert.ok(deficit_max > 50, `${deficit_max} were missing`);
  const before_ms = load.p95_ms(began_ms, deleted_ms);
  const during_ms = load.p95_ms(deleted_ms, repaired_ms);
  // A machine that became faster meanwhile excuses nothing.
  const slowdown = Math.max(1, control.p95_ms(deleted_ms, repaired_ms) / control.p95_ms(began_ms, deleted_ms));
  const bytes = taken.at(-1)!.bytes - taken[0]!.bytes;
  t.diagnostic(
    `${load.reads.length} reads; ${deficit_max} missing, made again in ${Math.round(repaired_ms - deleted_ms)} ms with ` +
      `${(bytes / MIB).toFixed(1)} MiB; p95 ${before_ms.toFixed(1)} ms before, ${during_ms.toFixed(1)} ms during, ` +
      `on a machine ${slowdown.toFixed(1)} times as slow`,
  );
  assert.ok(during_ms <= 2 * slowdown * before_ms + NOISE_MS, `p95 ${before_ms} ms before, ${during_ms} ms during`);
  // The sample was taken between the request and the answer, so its time counts up to the next request.
  for (const [from, first] of taken.entries()) {
    for (const [index, last] of taken.slice(from + 1, -1).entries()) {
      const time_s = (taken[from + index + 2]!.at_ms - first.at_ms) / 1000;
      assert.ok(last.bytes - first.bytes <= RATE_BYTES_PER_S * time_s + BURST_BYTES, 'the byte rate was held');
    }
  }
  assert.ok(bytes > BURST_BYTES, 'it was worth pacing');
  const ready = JSON.parse((await storage.send('GET', '/readyz')).text);
  assert.deepEqual(ready.degraded, ['durability']);
  assert.equal(await storage.metric('rf_observed'), 3);
  assert.equal(await storage.metric('repair_deficit_chunks'), 0);
  assert.ok((await storage.metric('repair_wait_seconds_count')) > 0);
});
