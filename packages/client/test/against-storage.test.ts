/** The client against a real storage process. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, before, suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, jittered } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { AnswerError, StorageClient, type Progress } from '@ron/client';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { startStorage, type StorageProcess } from '@ron/testkit/service';

const KIB = 1024;
const MIB = 1024 * KIB;
/** Longer than a restart on a busy machine: these tests do not cover the default waits of the client. */
const PATIENT = jittered({ tries_max: 600, from_ms: 100, to_ms: 200, factor: 1, cap_ms: 200 });

suite('client and storage', () => {
  const cleanUps: (() => Promise<void> | void)[] = [];
  let storage: StorageProcess;
  let client: StorageClient;

  before(async () => {
    storage = await startStorage({ after: (done) => void cleanUps.push(done) });
    client = new StorageClient({ url: storage.url, capability: storage.token });
  });
  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });

  for (const size of [0, 5, 64 * KIB, 64 * KIB + 1, 5 * MIB]) {
    test(`${size} bytes are stored and read back, and the address is that of the bytes`, async () => {
      const content = bytesOf(size);
      const receipt = await client.put(content, { media_type: 'text/plain' });
      assert.equal(receipt.address, formatAddress(blake3(content)));
      assert.deepEqual(receipt, {
        address: receipt.address,
        size,
        durability: { fsynced: true, copies: 1, target: 1 },
      });
      assertSameBytes(await client.bytes(receipt.address, MIB * 6), content);
      assert.deepEqual(await client.stat(receipt.address), {
        address: receipt.address,
        size,
        media_type: 'text/plain',
      });
    });
  }

  test('ranges are exact, even across groups and beyond the end', async () => {
    const content = bytesOf(300_000, 7);
    const { address } = await client.put(content);
    for (const [offset, length] of [
      [0, 1],
      [65_530, 20],
      [131_072, 65_536],
      [299_999, 1],
      [299_000, 5000],
      [1, undefined],
    ] as const) {
      const end = length === undefined ? undefined : offset + length;
      const found = await client.bytes(address, MIB, { range: { offset, length } });
      assertSameBytes(found, content.slice(offset, end), `${offset} + ${length}`);
    }
    await assert.rejects(client.bytes(address, MIB, { range: { offset: 300_000 } }), (error) => {
      assert.ok(isRonError(error, 'range_not_satisfiable'));
      assert.deepEqual(error.details, { size: 300_000 });
      return true;
    });
  });

  test('an object is read in windows that add up', async () => {
    const content = bytesOf(1_000_001, 3);
    const { address } = await client.put(content);
    const seen: Progress[] = [];
    const init = { window_bytes: 100_000, onProgress: (progress: Progress) => void seen.push(progress) };
    assertSameBytes(await client.bytes(address, 2 * MIB, init), content);
    assert.deepEqual(seen.at(-1), { done_bytes: 1_000_001, total_bytes: 1_000_001 });
    assert.ok(seen.every((each, at) => at === 0 || each.done_bytes > seen[at - 1]!.done_bytes));
  });

  test('streams, Blobs and rereadable bodies give the same address', async () => {
    const content = bytesOf(9 * MIB, 5);
    const expected = formatAddress(blake3(content));
    const small = content.slice(0, 100_000);
    const stream = (bytes: Uint8Array): ReadableStream<Uint8Array> => new Blob([Buffer.from(bytes)]).stream();
    assert.equal((await client.put(stream(content))).address, expected);
    assert.equal((await client.put(new Blob([content]))).address, expected);
    assert.equal((await client.put(stream(small))).address, formatAddress(blake3(small)));
    assert.equal((await client.put(Readable.from([small]))).address, formatAddress(blake3(small)));
    const steps: number[] = [];
    const read = (start: number): AsyncIterable<Uint8Array> => ReadableStream.from([content.subarray(start)]);
    const receipt = await client.put(
      { size: content.length, read },
      { onProgress: ({ done_bytes }) => void steps.push(done_bytes) },
    );
    assert.equal(receipt.address, expected);
    assert.equal(steps.at(-1), content.length);
  });

  test('the manifest is proven, pins are set and removed, volumes are listed', async () => {
    const content = bytesOf(200_000, 9);
    const { address } = await client.put(content);
    const manifest = await client.manifest(address);
    assert.equal(manifest.size, 200_000);
    assert.equal(manifest.chunks.length, 4);
    await client.pin(address);
    await client.unpin(address);
  });

  test('bytes of an earlier download are proven up to the first wrong subtree', async () => {
    const content = bytesOf(11 * 64 * KIB + 77, 4);
    const { address } = await client.put(content);
    const prefix = (bytes: Uint8Array): Promise<number> =>
      client.provenPrefix(address, {
        size: bytes.length,
        read: (start) => ReadableStream.from([bytes.subarray(start)]),
      });
    assert.equal(await prefix(content.subarray(0, 100)), 0);
    assert.equal(await prefix(content.subarray(0, 7 * 64 * KIB + 5)), 7 * 64 * KIB);
    assert.equal(await prefix(content), 11 * 64 * KIB);
    const damaged = Uint8Array.from(content.subarray(0, 7 * 64 * KIB));
    damaged[4 * 64 * KIB + 3]! ^= 1;
    assert.equal(await prefix(damaged), 4 * 64 * KIB, 'groups 0 to 3 are one valid subtree');
    assert.equal(await prefix(new Uint8Array(20 * 64 * KIB)), 0, 'longer than the object, and different');
    assert.equal(
      await prefix(Buffer.concat([content, new Uint8Array(5 * 64 * KIB)])),
      11 * 64 * KIB,
      'the rest is cut',
    );
  });

  test('a refusal of the service has its code and the correlation id of its logs', async () => {
    const stranger = new StorageClient({ url: storage.url });
    await assert.rejects(stranger.put(bytesOf(10)), (error) => {
      assert.ok(error instanceof AnswerError);
      assert.equal(error.code, 'unauthorized');
      assert.equal(error.http_status, 401);
      assert.equal(error.retryable, false);
      assert.match(error.corr_id!, /^[\w-]{8,}$/);
      return true;
    });
    const unknown = formatAddress(new Uint8Array(32));
    await assert.rejects(client.bytes(unknown, 10), (error) => isRonError(error, 'not_found'));
    await assert.rejects(client.stat(unknown), (error) => isRonError(error, 'not_found'));
  });

  test('a signal aborts a read between two parts', async () => {
    const { address } = await client.put(bytesOf(2 * MIB, 2));
    const controller = new AbortController();
    const reason = new Error('enough');
    await assert.rejects(async () => {
      for await (const _ of client.get(address, { signal: controller.signal, window_bytes: 64 * KIB }))
        controller.abort(reason);
    }, reason);
  });
});

test('a read resumes where it stopped after storage was killed and restarted', async (t) => {
  const storage = await startStorage(t);
  const client = new StorageClient({ url: storage.url, capability: storage.token, resume_policy: PATIENT });
  const content = bytesOf(4 * MIB, 8);
  const { address } = await client.put(content);
  const parts: Uint8Array[] = [];
  let restarted: Promise<void> | undefined;
  for await (const part of client.get(address, { window_bytes: 512 * KIB })) {
    parts.push(part);
    if (restarted === undefined && parts.length > 10) {
      await storage.kill();
      restarted = storage.start();
    }
  }
  await restarted;
  assertSameBytes(Buffer.concat(parts), Buffer.from(content));
});

test('an upload resumes where it stopped after storage was killed and restarted', async (t) => {
  const storage = await startStorage(t);
  const content = bytesOf(20 * MIB, 6);
  const requests: string[] = [];
  let restarted: Promise<void> | undefined;
  const watched: typeof fetch = async (url, init) => {
    requests.push(`${init!.method} ${new URL(url as URL).pathname.split('/')[1]}`);
    if (restarted === undefined && requests.filter((request) => request === 'PATCH uploads').length === 2) {
      await storage.kill();
      restarted = storage.start();
    }
    return await fetch(url, init);
  };
  const init = { url: storage.url, capability: storage.token, fetch: watched, resume_policy: PATIENT };
  const client = new StorageClient(init);
  let resume_url = '';
  const receipt = await client.put(content, { media_type: 'video/mp4', onUploadUrl: (url) => void (resume_url = url) });
  await restarted;
  assert.equal(receipt.address, formatAddress(blake3(content)));
  assert.deepEqual(receipt.durability, { fsynced: true, copies: 1, target: 1 });
  assert.equal((await client.stat(receipt.address)).media_type, 'video/mp4');
  assert.equal(requests.filter((request) => request === 'POST uploads').length, 1);
  assert.equal(requests.filter((request) => request === 'PATCH uploads').length, 4, 'three pieces, one of them twice');
  assertSameBytes(await client.bytes(receipt.address, 21 * MIB), content);

  requests.length = 0;
  assert.equal((await client.put(content, { resume_url })).address, receipt.address);
  assert.deepEqual(requests, ['HEAD uploads'], 'the status of a finished upload is only queried');
});

test('objects in larger groups are read and proven the same way', async (t) => {
  const storage = await startStorage(t, ['--storage.chunk_size=256KiB']);
  const client = new StorageClient({ url: storage.url, capability: storage.token });
  const content = bytesOf(1_300_000, 12);
  const { address } = await client.put(content);
  assertSameBytes(await client.bytes(address, 2 * MIB), content);
  const found = await client.bytes(address, MIB, { range: { offset: 500_000, length: 100_000 } });
  assertSameBytes(found, content.subarray(500_000, 600_000));
  const kept = content.slice(0, 900_000);
  const read = (start: number): AsyncIterable<Uint8Array> => ReadableStream.from([kept.subarray(start)]);
  assert.equal(await client.provenPrefix(address, { size: kept.length, read }), 786_432, 'three groups of 256 KiB');
});
