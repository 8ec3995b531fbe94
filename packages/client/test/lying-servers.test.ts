/** No server can make the client yield a wrong byte, and each failure is reported with its cause. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { isRonError, type ErrorCode } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { StorageClient } from '@ron/client';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { honestSlice, readBody, sendSlice, serve, type Handler } from './fake-server.ts';

const GROUP = 65_536;
const content = bytesOf(5 * GROUP + 1000);
const address = formatAddress(blake3(content));
const quick = { tries_max: 2, backoff_ms: () => 1 };

/** Reads all yielded bytes; they must be a prefix of the content, even if the read fails afterwards. */
async function read(client: StorageClient, window_bytes = 2 * GROUP): Promise<{ bytes: number; error: unknown }> {
  let at = 0;
  try {
    for await (const part of client.get(address, { window_bytes })) {
      assertSameBytes(Buffer.from(part), Buffer.from(content.subarray(at, at + part.length)), `wrong bytes at ${at}`);
      at += part.length;
    }
  } catch (error) {
    return { bytes: at, error };
  }
  return { bytes: at, error: undefined };
}

/** `stall_ms` is long in tests without a stall: a busy machine must not look like a silent server. */
async function clientOf(t: TestContext, handler: Handler, stall_ms = 20_000): Promise<StorageClient> {
  const url = await serve(t, handler);
  return new StorageClient({ url, policy: quick, resume_policy: quick, stall_ms, deadline_ms: 30_000 });
}

function sizeStated(slice: Buffer, size: number): Buffer {
  const changed = Buffer.from(slice);
  changed.writeBigUInt64LE(BigInt(size), 0);
  return changed;
}

const LIES: Record<string, (slice: Buffer, call: number) => Buffer> = {
  'a longer object': (slice) => sizeStated(slice, content.length + 1),
  'a shorter object': (slice) => sizeStated(slice, content.length - 1),
  'an object with more groups': (slice) => sizeStated(slice, content.length + GROUP),
  'an object of one group': (slice) => sizeStated(slice, 100),
  'an empty object': (slice) => sizeStated(slice, 0).subarray(0, 8),
  'an impossible length': (slice) => Buffer.concat([Buffer.alloc(8, 255), slice.subarray(8)]),
  'another length in the second answer': (slice, call) =>
    call === 1 ? sizeStated(slice, content.length + 5) : sizeStated(slice, content.length + 6),
  'more bytes than the slice has': (slice) => Buffer.concat([slice, Buffer.from('x')]),
  'less than the slice': (slice) => slice.subarray(0, slice.length - 1),
  'nothing at all': () => Buffer.alloc(0),
};

for (const [lie, change] of Object.entries(LIES)) {
  test(`a server that sends ${lie} is detected`, async (t) => {
    let calls = 0;
    const client = await clientOf(t, async (request, response) => {
      calls += 1;
      sendSlice(response, change(await honestSlice(content, request.url!), calls));
    });
    const { bytes, error } = await read(client);
    assert.ok(isRonError(error, 'integrity'), String(error));
    assert.equal(error.retryable, false);
    assert.ok(bytes < content.length);
    assert.ok(calls <= 3, 'a lying server is not retried');
  });
}

test('one flipped bit anywhere in a response is detected, and all bytes before it were correct', async (t) => {
  let flip = 0;
  const client = await clientOf(t, async (request, response) => {
    const slice = await honestSlice(content, request.url!);
    slice[flip % slice.length]! ^= 1 << (flip % 8);
    sendSlice(response, slice);
  });
  await fc.assert(
    fc.asyncProperty(fc.nat(content.length), async (at) => {
      flip = at;
      assert.ok(isRonError((await read(client, 10 * GROUP)).error, 'integrity'));
    }),
    { numRuns: 40 },
  );
});

test('bytes without a proof, of another object, or in groups of an unsupported size, are refused', async (t) => {
  const other = bytesOf(content.length, 99);
  const grouped =
    (group_bytes: string): Handler =>
    async (request, response) =>
      sendSlice(response, await honestSlice(content, request.url!), { 'Ron-Group-Bytes': group_bytes });
  const answers: [Handler, RegExp][] = [
    [
      (_request, response) => response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(content),
      /it sent no proof$/,
    ],
    [
      async (request, response) => sendSlice(response, await honestSlice(other, request.url!)),
      /does not match the address$/,
    ],
    [grouped('1000'), /an impossible group size$/],
    [grouped('2097152'), /an impossible group size$/],
    [grouped('131072'), /does not match the address$/],
  ];
  for (const [answer, message] of answers) {
    const { bytes, error } = await read(await clientOf(t, answer));
    assert.ok(isRonError(error, 'integrity'), String(error));
    assert.match(error.message, message);
    assert.equal(bytes, 0);
  }
});

test('a connection that breaks repeatedly is resumed where it broke, while it makes progress', async (t) => {
  const offsets: number[] = [];
  const client = await clientOf(t, async (request, response) => {
    const slice = await honestSlice(content, request.url!);
    offsets.push(Number(new URL(request.url!, 'http://x').searchParams.get('offset')));
    response.writeHead(200, { 'Content-Type': 'application/vnd.ron.bao', 'Content-Length': String(slice.length) });
    const part = slice.subarray(0, GROUP + 1000);
    if (part.length < slice.length) response.write(part, () => setTimeout(() => request.socket.destroy(), 20));
    else response.end(slice);
  });
  const { bytes, error } = await read(client, 10 * GROUP);
  assert.equal(error, undefined);
  assert.equal(bytes, content.length);
  assert.deepEqual(
    offsets,
    [0, 1, 2, 3, 4, 5].map((group) => group * GROUP),
  );
});

test('a connection that breaks without progress is given up, with the error of the system', async (t) => {
  let calls = 0;
  const client = await clientOf(t, (request) => {
    calls += 1;
    request.socket.destroy();
  });
  const { error } = await read(client);
  assert.ok(isRonError(error, 'unreachable'), String(error));
  assert.equal(error.retryable, true);
  assert.match(String(error.details!['system_code']), /UND_ERR_SOCKET|ECONNRESET/);
  assert.equal(calls, 2, 'as many tries as the policy allows');
});

test('a stalled server is a timeout, before its headers and within its body', async (t) => {
  const handlers: Handler[] = [
    () => undefined,
    (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'application/vnd.ron.bao', 'Content-Length': '1000' });
      response.write('x');
    },
  ];
  for (const handler of handlers) {
    const { bytes, error } = await read(await clientOf(t, handler, 200));
    assert.ok(isRonError(error, 'timeout'), String(error));
    assert.equal(bytes, 0);
  }
});

test('a request to a busy server is retried after Retry-After, a refusal is not retried', async (t) => {
  const asked_ms: number[] = [];
  let status = 429;
  const client = await clientOf(t, async (request, response) => {
    asked_ms.push(performance.now());
    if (asked_ms.length > 1) return sendSlice(response, await honestSlice(content, request.url!));
    response.writeHead(status, { 'Retry-After': '1', 'Content-Type': 'application/problem+json' });
    response.end(JSON.stringify({ code: 'busy', detail: 'later', corr_id: 'abc', retryable: status === 429 }));
  });
  assert.equal((await read(client, 10 * GROUP)).error, undefined);
  assert.equal(asked_ms.length, 2);
  assert.ok(asked_ms[1]! - asked_ms[0]! >= 1000, 'Retry-After is honoured');

  asked_ms.length = 0;
  status = 403;
  const { error } = await read(client);
  assert.ok(isRonError(error, 'busy') && !error.retryable, '`retryable` is that of the server');
  assert.equal(asked_ms.length, 1);
});

test('a response without a problem document still has a code', async (t) => {
  const expected: [number, ErrorCode, boolean][] = [
    [404, 'not_found', false],
    [418, 'bad_request', false],
    [502, 'unreachable', true],
    [500, 'internal', false],
    [507, 'storage_full', true],
  ];
  for (const [status, code, retryable] of expected) {
    const client = await clientOf(t, (_request, response) => response.writeHead(status).end('<html>no</html>'));
    const { error } = await read(client);
    assert.ok(isRonError(error, code), `${status}: ${String(error)}`);
    assert.equal(error.retryable, retryable);
  }
});

test('a capability is not sent to an origin that the server refers to', async (t) => {
  const seen: string[] = [];
  const thief = await serve(t, (request, response) => {
    seen.push(String(request.headers.authorization));
    response.end();
  });
  const url = await serve(t, (_request, response) => response.writeHead(307, { Location: `${thief}/o` }).end());
  const client = new StorageClient({ url, capability: 'secret', policy: quick });
  await assert.rejects(client.stat(address));
  const uploads = await serve(t, (_request, response) =>
    response.writeHead(201, { Location: `${thief}/uploads/1`, 'Tus-Resumable': '1.0.0' }).end(),
  );
  const uploader = new StorageClient({ url: uploads, capability: 'secret', policy: quick, resume_policy: quick });
  await assert.rejects(uploader.put(bytesOf(9_000_000)), (error) => isRonError(error, 'integrity'));
  assert.deepEqual(seen, []);
});

test('a receipt for other bytes is an error', async (t) => {
  const client = await clientOf(t, async (request, response) => {
    await readBody(request);
    response.writeHead(201, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ address, size: 5, durability: { fsynced: true, copies: 1, target: 1 } }));
  });
  await assert.rejects(client.put(Buffer.from('hello')), (error) => isRonError(error, 'integrity'));
});

test('a manifest that does not combine to the address is refused', async (t) => {
  const manifest = { address, size: 9, chunk_bytes: GROUP, media_type: 'a/b', durability: {} };
  const hex = '00'.repeat(32);
  for (const parts of [
    { chunks: [hex], subtrees: [] },
    { chunks: [hex, hex], subtrees: [hex, hex] },
    { chunks: [hex, hex], subtrees: [hex, 'no hex'] },
    { chunks: 'x', subtrees: 7 },
  ]) {
    const client = await clientOf(t, (_request, response) => response.end(JSON.stringify({ ...manifest, ...parts })));
    await assert.rejects(client.manifest(address), (error) => isRonError(error, 'integrity'));
  }
});
