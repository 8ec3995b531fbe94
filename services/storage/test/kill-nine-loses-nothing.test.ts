/**
 * kill -9 at random under load: every object that was acknowledged is there and right, and nothing half-written is served.
 * 10 rounds; RON_LONG=1 makes it 100.
 */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom, type ServiceProcess } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';

const ROUNDS = process.env['RON_LONG'] === '1' ? 100 : 10;
const WRITERS = 8;
/** Mostly small ones; some of several chunks, some at the border. */
const SIZES = [0, 1, 100, 4 * KIB, 4 * KIB, 64 * KIB, 64 * KIB + 1, 300 * KIB, 1500 * KIB];

interface Attempt {
  readonly seed: number;
  readonly size: number;
  readonly address: string;
}

/** Writes until the process dies. Everything acknowledged goes to `acknowledged`, everything tried to `tried`. */
async function writeUntilDead(
  storage: ServiceProcess,
  headers: Readonly<Record<string, string>>,
  first_seed: number,
  tried: Attempt[],
  acknowledged: Attempt[],
): Promise<void> {
  for (let seed = first_seed; storage.running; seed += WRITERS) {
    const size = SIZES[seed % SIZES.length]!;
    const bytes = bytesOf(size, seed);
    const attempt = { seed, size, address: addressOf(bytes) };
    tried.push(attempt);
    try {
      const reply = await storage.send('PUT', `/o/${attempt.address}`, { body: bytes, headers });
      if (reply.status === 200 || reply.status === 201) acknowledged.push(attempt);
    } catch {
      // The connection died with the process: the object may be there or not.
    }
  }
}

/** An upload over all rounds: its acknowledged offset must never shrink. */
class LongUpload {
  readonly #bytes = bytesOf(64 * KIB * KIB, 77);
  readonly #headers: Readonly<Record<string, string>>;
  #path = '';
  #told = 0;

  constructor(headers: Readonly<Record<string, string>>) {
    this.#headers = { ...headers, 'tus-resumable': '1.0.0' };
  }

  /** Adds to it until the process dies or it is complete. */
  async goOn(storage: ServiceProcess): Promise<void> {
    try {
      if (this.#path === '') {
        const headers = { ...this.#headers, 'upload-length': String(this.#bytes.length) };
        this.#path = (await storage.send('POST', '/uploads', { headers })).headers.location ?? '';
      }
      while (storage.running && this.#told < this.#bytes.length) await this.#patch(storage);
    } catch {
      // The connection died with the process.
    }
  }

  async #patch(storage: ServiceProcess): Promise<void> {
    const body = this.#bytes.subarray(this.#told, this.#told + 200_000);
    const reply = await storage.send('PATCH', this.#path, {
      body,
      headers: {
        ...this.#headers,
        'content-type': 'application/offset+octet-stream',
        'upload-offset': String(this.#told),
      },
    });
    if (reply.status === 204) this.#told = Number(reply.headers['upload-offset']);
  }

  async check(storage: ServiceProcess): Promise<void> {
    if (this.#path === '') return;
    const { status, headers } = await storage.send('HEAD', this.#path, { headers: this.#headers });
    assert.equal(status, 200, 'an upload that was created is there');
    const offset = Number(headers['upload-offset']);
    assert.ok(offset >= this.#told, `told ${this.#told}, found ${offset}`);
    this.#told = offset;
  }

  /** Sends the rest, and checks all of it. */
  async finish(storage: ServiceProcess): Promise<void> {
    await this.goOn(storage);
    const { headers } = await storage.send('HEAD', this.#path, { headers: this.#headers });
    assert.equal(headers['ron-address'], addressOf(this.#bytes));
    const reply = await storage.send('GET', `/o/${addressOf(this.#bytes)}`);
    assert.ok(reply.body.equals(this.#bytes));
  }
}

async function assertWhole(storage: ServiceProcess, attempt: Attempt, mustBe: boolean): Promise<void> {
  const reply = await storage.send('GET', `/o/${attempt.address}`);
  if (!mustBe && reply.status === 404) return;
  assert.equal(reply.status, 200, `${attempt.address} of ${attempt.size} bytes: ${reply.text.slice(0, 200)}`);
  assert.equal(addressOf(reply.body), attempt.address);
}

test(`${ROUNDS} rounds of kill -9 under load`, { timeout: ROUNDS * 60_000 }, async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const flags = [
    `--data_dirs=${dir}`,
    `--auth.key_file=${keysIn(temp.path)}`,
    '--storage.segment_bytes=4MiB',
    '--storage.compact_live_ratio=0.9',
  ];
  const kept: Attempt[] = [];
  const upload = new LongUpload(headers);
  let tried: Attempt[] = [];
  let sure = new Set<string>();
  for (let round = 0; round <= ROUNDS; round += 1) {
    // Once in a while the index is lost as well: it is only a cache.
    if (round % 4 === 3) await rm(join(dir, 'index'), { recursive: true, force: true });
    await using storage = await startProcess({ flags });
    const sample = round === ROUNDS ? kept : kept.filter(() => Math.random() < 20 / kept.length);
    for (const attempt of tried) await assertWhole(storage, attempt, sure.has(attempt.address));
    for (const attempt of sample) await assertWhole(storage, attempt, true);
    assert.equal(await storage.metric('integrity_fail_total{reason="checksum"}'), 0);
    await upload.check(storage);
    if (round === ROUNDS) {
      await upload.finish(storage);
      break;
    }

    tried = [];
    const acknowledged: Attempt[] = [];
    const writers = Array.from({ length: WRITERS }, (_unused, at) =>
      writeUntilDead(storage, headers, round * 100_000 + at + 1, tried, acknowledged),
    );
    const uploading = upload.goOn(storage);
    if (round % 3 === 2) await storage.send('POST', '/admin/compact', { headers });
    await new Promise((resolve) => setTimeout(resolve, 30 + Math.random() * 400));
    // On a slow machine too, every second round has acknowledged writes to lose.
    if (round % 2 === 0) await eventually('writes are acknowledged', () => acknowledged.length > 10);
    await storage.kill();
    await Promise.all(writers);
    await uploading;
    kept.push(...acknowledged);
    sure = new Set(acknowledged.map((attempt) => attempt.address));
  }
  assert.ok(kept.length > ROUNDS * 5, `only ${kept.length} objects were acknowledged`);
});
