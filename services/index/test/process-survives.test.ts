/** One data directory through crashes, reloads, a stop under load, and damage. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { formatAddress, type AnnounceEntry } from '@ron/proto';
import { eventually, MIB, tempDir, type TempDir } from '@ron/testkit';
import { assertRefusal, StartError, type Reply } from '@ron/testkit/service';
import { signedDto } from '../src/publish/name-dto.ts';
import { nameSigner } from '../src/publish/testing.ts';
import { startProcess, type IndexProcess } from './process.ts';

const signer = nameSigner();
let next = 0;
function entry(): AnnounceEntry {
  const address = formatAddress(new Uint8Array(new Uint32Array(8).fill((next += 1)).buffer));
  return { address, size: next, media_type: 'text/plain' };
}

suite('one data directory', () => {
  let temp: TempDir;
  let config: string;
  let index: IndexProcess;
  /** Labels of acknowledged publishes, and addresses of acknowledged announcements. */
  const names: string[] = [];
  const objects: string[] = [];

  const start = async (): Promise<IndexProcess> =>
    startProcess(temp.path, { flags: [`--config=${config}`], reports: true });
  const configure = (text: string): Promise<void> => writeFile(config, text);

  before(async () => {
    temp = await tempDir();
    config = join(temp.path, 'index.toml');
    await configure('quotas.publish_per_min = 100000\n');
    index = await start();
  });
  after(async () => {
    await index.process.kill();
    await temp[Symbol.asyncDispose]();
  });

  async function publish(label: string): Promise<void> {
    const reply = await index.call('PUT', `/names/${label}`, signedDto(signer.record(label)));
    if (reply.status === 201) names.push(label);
  }
  async function announce(): Promise<void> {
    const entries = [entry()];
    const reply = await index.call('POST', '/announce', { entries });
    if (reply.status === 200) objects.push(entries[0]!.address);
  }
  async function assertKept(): Promise<void> {
    for (const label of names) {
      const reply = await index.call('GET', `/names/${label}`);
      assert.equal(reply.status, 200, `${label}: ${reply.text}`);
    }
    for (const address of objects) assert.equal((await index.call('GET', `/resolve/${address}`)).status, 200, address);
  }
  const gate = async (name: string): Promise<{ open: boolean; reason?: string }> =>
    (await index.call('GET', '/readyz')).json.gates.find((each: { gate: string }) => each.gate === name);

  test('it starts in little memory and loads no DHT library', async () => {
    assert.equal((await index.call('PUT', '/trust/', { key: signer.key })).status, 204);
    assert.deepEqual(
      index.process.log.filter(({ msg }) => msg === 'loaded'),
      [],
    );
    const bare = spawnSync(process.execPath, ['-p', 'process.memoryUsage.rss()'], { encoding: 'utf8' });
    const grown_bytes = index.process.resident_bytes - Number(bare.stdout);
    assert.ok(grown_bytes < 250 * MIB, `${grown_bytes / MIB} MiB more than Node`);
  });

  test('kill -9 during publishes and announcements loses nothing that was acknowledged', async () => {
    const writers = Promise.allSettled(
      Array.from({ length: 8 }, async (_, writer) => {
        for (let at = 0; ; at += 1) {
          await publish(`w${writer}/n${at}`);
          await announce();
        }
      }),
    );
    await eventually('some are acknowledged', () => names.length >= 20 && objects.length >= 20);
    await index.process.kill();
    await writers;
    index = await start();
    await assertKept();
    assert.equal((await gate('name_log')).open, true);
  });

  test('a second process on the directory is refused, and the first one goes on', async () => {
    const second = start();
    second.then(
      ({ process }) => process.kill(),
      () => undefined,
    );
    await assert.rejects(
      second,
      (error) => error instanceof StartError && /in use by another process/.test(error.message),
    );
    await publish('after/second');
    assert.ok(names.includes('after/second'));
  });

  test('SIGHUP during lookups: a good configuration applies, a bad one is refused and named', async () => {
    const reload = async (text: string, result: string): Promise<void> => {
      const series = `config_reloads_total{result="${result}"}`;
      const before_total = await index.process.metric(series);
      await configure(text);
      index.process.child.kill('SIGHUP');
      await eventually(`reloaded: ${result}`, async () => (await index.process.metric(series)) > before_total);
    };
    const over = new AbortController();
    const statuses = new Set<number>();
    const clients = Promise.all(
      Array.from({ length: 4 }, async (_, client) => {
        for (let at = client; !over.signal.aborted; at += 1)
          statuses.add((await index.call('GET', `/resolve/${objects[at % objects.length]}?fresh=1`)).status);
      }),
    );
    await reload('quotas.publish_per_min = 100000\ncache.ttl_s = 5\n', 'ok');
    await reload('quotas.publish_per_min = 100000\ndht.alpha = 0\ndht.mode = "join"\n', 'refused');
    const { open, reason = '' } = await gate('config');
    assert.ok(!open && reason.includes('dht.alpha'), reason);
    assert.equal((await index.call('GET', '/readyz')).status, 200, 'the gate is soft');
    await reload('quotas.publish_per_min = 100000\n', 'ok');
    assert.equal((await gate('config')).open, true);
    over.abort();
    await clients;
    assert.deepEqual([...statuses], [200]);
  });

  test('[index I-6] SIGTERM under load: every accepted request is answered, and the exit is clean', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 64 });
    const replies: Reply[] = [];
    const clients = Array.from({ length: 32 }, async (_, client) => {
      for (let at = client; ; at += 1) {
        const path = `/resolve/${objects[at % objects.length]}?fresh=1`;
        replies.push(await index.process.send('GET', path, { agent }));
      }
    });
    const publisher = async (): Promise<void> => {
      for (let at = 0; ; at += 1) await publish(`drain/n${at}`);
    };
    const ended = Promise.allSettled([...clients, publisher()]);
    await eventually('load', () => replies.length > 100);
    const began_ms = performance.now();
    index.process.child.kill('SIGTERM');
    const ends = await ended;
    assert.equal(await index.process.exit(), 0);
    assert.ok(performance.now() - began_ms < 15_000);
    // A connection may be refused or reset between two requests, never within an answer.
    for (const end of ends)
      assert.match(String((end as PromiseRejectedResult).reason), /ECONNREFUSED|ECONNRESET|hang up|EPIPE/);
    for (const { status, problem } of replies)
      assert.ok(status === 200 || (status === 503 && problem?.code === 'draining'), `${status} ${problem?.code}`);
    assert.ok(index.process.logged('drained'));
    index = await start();
    await assertKept();
  });

  test('a damaged database is rebuilt from the log, and a new epoch requests all objects', async () => {
    const { epoch } = (await index.call('POST', '/announce', { entries: [] })).json;
    assert.equal(await index.process.stop(), 0);
    const db = join(temp.path, 'data', 'db', 'index.db');
    const bytes = await readFile(db);
    await writeFile(db, bytes.fill(0x5a, 0, 4096));
    index = await start();
    objects.length = 0;
    await assertKept();
    assert.notEqual((await index.call('POST', '/announce', { entries: [] })).json.epoch, epoch);
    assert.ok(index.process.logged('a damaged database was moved aside and is rebuilt'));
  });

  test('a damaged log stops publishing, not resolving', async () => {
    await announce();
    assert.equal(await index.process.stop(), 0);
    const dir = join(temp.path, 'data', 'name-log');
    for (const name of await readdir(dir)) {
      if (!name.startsWith('entries')) continue;
      const bytes = await readFile(join(dir, name));
      await writeFile(join(dir, name), bytes.fill(0x5a, 16, 64));
    }
    index = await start();
    const { open, reason = '' } = await gate('name_log');
    assert.ok(!open, reason);
    assert.equal((await index.call('GET', '/readyz')).status, 200, 'the gate is soft');
    await assertKept();
    const label = 'after/damage';
    assertRefusal(await index.call('PUT', `/names/${label}`, signedDto(signer.record(label))), 503, 'not_ready');
  });
});
