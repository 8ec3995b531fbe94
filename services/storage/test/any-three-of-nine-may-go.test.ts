/**
 * Nine directories with stripes of 6+3 and no copies, damaged in turn: kill -9 while stripes are made, bytes that
 * rot in data and parity, any three directories gone, replaced, three others gone. Nothing that was acknowledged is lost.
 */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { bytesOf, eventually, KIB, MIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom, type Json, type ServiceProcess } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';

const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'];
const SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 3 * 64 * KIB, MIB, 10 * MIB + 5];

class Node implements AsyncDisposable {
  readonly #dir: string;
  readonly #headers: Readonly<Record<string, string>>;
  #storage: ServiceProcess | undefined;

  private constructor(dir: string, headers: Readonly<Record<string, string>>) {
    this.#dir = dir;
    this.#headers = headers;
  }

  static async start(dir: string): Promise<Node> {
    const node = new Node(dir, await authorizationFrom(keysIn(dir), 'storage'));
    await node.restart();
    return node;
  }

  async restart(): Promise<void> {
    await this.#storage?.kill();
    const flags = [
      '--server.bind=127.0.0.1:0',
      `--data_dirs=${NAMES.map((name) => this.path(name)).join(',')}`,
      `--auth.key_file=${keysIn(this.#dir)}`,
      '--storage.cache_bytes=1MiB',
      '--storage.fast_path=false',
      '--durability.ec=true',
      '--durability.replication_factor=1',
      '--durability.repair_interval=1h',
      '--durability.repair_pacing=1GiB/s',
    ];
    this.#storage = await startProcess({ flags });
  }

  path(name: string): string {
    return join(this.#dir, name);
  }

  async put(bytes: Buffer): Promise<void> {
    const reply = await this.#send('PUT', `/o/${addressOf(bytes)}`, bytes);
    assert.ok(reply.status === 200 || reply.status === 201, reply.text);
  }

  async assertServed(objects: readonly Buffer[]): Promise<void> {
    for (const bytes of objects) {
      const reply = await this.#send('GET', `/o/${addressOf(bytes)}`);
      assert.equal(reply.status, 200, `${bytes.length} bytes: ${reply.text.slice(0, 300)}`);
      assert.ok(reply.body.equals(bytes), `${bytes.length} bytes are others`);
    }
  }

  async ask(method: string, path: string): Promise<Json> {
    const reply = await this.#send(method, path);
    assert.ok(reply.status < 300, reply.text);
    return JSON.parse(reply.text);
  }

  async task(kind: 'repair' | 'scrub' | 'compact'): Promise<Json> {
    const { id } = await this.ask('POST', `/admin/${kind}`);
    let task: Json;
    await eventually(`${kind} ends`, async () => {
      task = await this.ask('GET', `/admin/tasks/${id}`);
      return task.state !== 'running';
    });
    assert.equal(task.state, 'done', JSON.stringify(task));
    return task.progress;
  }

  async lose(names: readonly string[]): Promise<void> {
    for (const name of names) await rm(this.path(name), { recursive: true });
    await eventually('they count as lost', async () => {
      const { volumes } = await this.ask('GET', '/admin/volumes');
      return volumes.filter((each: Json) => each.life === 'lost').length === names.length;
    });
  }

  async replace(names: readonly string[]): Promise<void> {
    for (const name of names) {
      await mkdir(this.path(name));
      await this.ask('POST', `/admin/volumes/restore?volume=${encodeURIComponent(this.path(name))}`);
    }
  }

  /** Changes bytes in every 40th KiB of the files of a directory. */
  async rot(name: string): Promise<void> {
    const segments = join(this.path(name), 'segments');
    for (const file of await readdir(segments)) {
      const bytes = await readFile(join(segments, file));
      for (let at = 20 * KIB; at < bytes.length; at += 40 * KIB) bytes[at]! ^= 1;
      await writeFile(join(segments, file), bytes, { flag: 'r+' });
    }
  }

  #send(method: string, path: string, body?: Buffer): ReturnType<ServiceProcess['send']> {
    return this.#storage!.send(method, path, { headers: this.#headers, ...(body !== undefined && { body }) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#storage?.kill();
  }
}

test('nine directories, 6+3, no copies: any three go, and three others after them', { timeout: 600_000 }, async () => {
  await using temp = await tempDir();
  await using node = await Node.start(temp.path);
  const objects = SIZES.map((size, index) => bytesOf(size, index + 1));
  for (const bytes of objects) await node.put(bytes);
  // Killed while stripes are made, at several steps of it.
  for (const [round, wait_ms] of [5, 40, 120, 250].entries()) {
    await node.ask('POST', '/admin/repair');
    await pause(wait_ms);
    await node.restart();
    const late = bytesOf(500 * KIB + round, 100 + round);
    await node.put(late);
    objects.push(late);
    await node.assertServed(objects);
  }
  await node.task('repair');
  await node.task('compact');
  await node.rot('e');
  await node.assertServed(objects);
  await node.task('scrub');
  await node.task('repair');
  for (const [wave, names] of [NAMES.slice(0, 3), NAMES.slice(3, 6), NAMES.slice(6)].entries()) {
    await node.lose(names);
    await node.assertServed(objects);
    const late = [bytesOf(30 * KIB, 200 + wave), bytesOf(700 * KIB, 300 + wave)];
    for (const bytes of late) await node.put(bytes);
    objects.push(...late);
    await node.task('repair');
    const { crowded } = await node.ask('GET', '/admin/repair');
    assert.ok(crowded > 0, 'nine shards on six directories are not crowded');
    await node.replace(names);
    const { deficit } = await node.task('repair');
    const status = await node.ask('GET', '/admin/repair');
    assert.deepEqual([deficit, status.crowded, status.stripes.failed], [0, 0, 0]);
    await node.task('compact');
    if (wave === 1) await node.restart();
  }
  const { volumes } = await node.task('scrub');
  assert.deepEqual(
    volumes.map((each: Json) => each.bad),
    NAMES.map(() => 0),
  );
  await node.assertServed(objects);
});
