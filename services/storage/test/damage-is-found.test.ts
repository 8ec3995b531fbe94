/** Damaged bytes on disk are detected, reported and never served; all other objects are served. */
import assert from 'node:assert/strict';
import { open, readdir, readFile, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { bytesOf, eventually, KIB, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal } from '@ron/testkit/service';
import { assertServed, startService, type TestService } from './support.ts';

const SMALL = bytesOf(5000, 1);
const LARGE = bytesOf(2000 * KIB, 2);
const OTHER = bytesOf(7000, 3);
const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

interface Place {
  readonly file: string;
  readonly offset: number;
}

/** Where `needle` lies in the segments below `dir`. */
async function placeOf(dir: string, needle: Uint8Array): Promise<Place> {
  const folder = join(dir, 'segments');
  for (const name of (await readdir(folder)).toSorted()) {
    const offset = (await readFile(join(folder, name))).indexOf(needle);
    if (offset >= 0) return { file: join(folder, name), offset };
  }
  throw new Error('the needle was not found');
}

async function flip({ file, offset }: Place): Promise<void> {
  const handle = await open(file, 'r+');
  const byte = Buffer.alloc(1);
  await handle.read(byte, 0, 1, offset);
  byte[0]! ^= 0x40;
  await handle.write(byte, 0, 1, offset);
  await handle.close();
}

/** Stores the objects with one service, applies `harm` to its directory while it is stopped, and starts another one. */
async function afterHarm(
  harm: (dir: string) => Promise<void>,
  judge: (service: TestService) => Promise<void>,
): Promise<void> {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  {
    await using service = await startService({ dir });
    await service.put(SMALL, { 'content-type': 'application/x-small' });
    for (const bytes of [LARGE, OTHER]) await service.put(bytes);
    await service.storage.drain();
  }
  await harm(dir);
  await using service = await startService({ dir });
  await judge(service);
}

/** A damaged object is quarantined, counted, and can be stored again. */
async function assertMended(service: TestService, bytes: Buffer): Promise<void> {
  assert.ok((await service.metric('integrity_fail_total{reason="checksum"}')) >= 1);
  assert.ok((await readdir(join(service.dir, 'quarantine'))).length >= 1, 'the damaged record is quarantined');
  await service.put(bytes);
  await assertServed(service, [bytes]);
}

describe('a flipped byte', () => {
  test('in a small object', () =>
    afterHarm(
      async (dir) => flip(await placeOf(dir, SMALL.subarray(0, 64))),
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(SMALL)), 500, 'integrity');
        assertRefusal(await service.send('GET', pathOf(SMALL)), 500, 'integrity');
        await assertServed(service, [LARGE, OTHER]);
        await assertMended(service, SMALL);
      },
    ));

  test('in the first chunk: a problem, because no header is out yet', () =>
    afterHarm(
      async (dir) => flip(await placeOf(dir, LARGE.subarray(100, 164))),
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(LARGE)), 500, 'integrity');
        assertRefusal(await service.send('GET', pathOf(LARGE)), 500, 'integrity');
        assertRefusal(await service.send('GET', `${pathOf(LARGE)}?proof=bao`), 500, 'integrity');
        const rest = await service.send('GET', pathOf(LARGE), { headers: { range: 'bytes=65536-' } });
        assert.ok(rest.body.equals(LARGE.subarray(65_536)), 'intact chunks are served');
        await assertServed(service, [SMALL, OTHER]);
        await assertMended(service, LARGE);
      },
    ));

  test('in a later chunk: the connection is destroyed, and no byte before that is wrong', () =>
    afterHarm(
      async (dir) => flip(await placeOf(dir, LARGE.subarray(1900 * KIB, 1900 * KIB + 64))),
      async (service) => {
        await assert.rejects(service.send('GET', pathOf(LARGE)), /aborted|ECONNRESET/);
        const start = await service.send('GET', pathOf(LARGE), { headers: { range: 'bytes=0-999999' } });
        assert.ok(start.body.equals(LARGE.subarray(0, 1_000_000)));
        await assertServed(service, [SMALL, OTHER]);
        await assertMended(service, LARGE);
      },
    ));

  test('in the page of a manifest', () =>
    afterHarm(
      async (dir) => {
        // The page begins with the id of the first chunk.
        const id = Buffer.from(addressOf(LARGE.subarray(0, 64 * KIB)).slice(3), 'hex');
        const first = await placeOf(dir, id);
        const whole = await readFile(first.file);
        await flip({ file: first.file, offset: whole.indexOf(id, whole.indexOf(id) + 1) + 3 });
      },
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(LARGE)), 500, 'integrity');
        assertRefusal(await service.send('GET', `${pathOf(LARGE)}/manifest`), 500, 'integrity');
        await assertServed(service, [SMALL, OTHER]);
        await assertMended(service, LARGE);
      },
    ));

  test('in the manifest', () =>
    afterHarm(
      async (dir) => {
        const size = Buffer.alloc(12);
        size.writeBigUInt64LE(BigInt(LARGE.length));
        size.writeUInt32LE(64 * KIB, 8);
        await flip(await placeOf(dir, size));
      },
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(LARGE)), 500, 'integrity');
        await assertServed(service, [SMALL, OTHER]);
        await assertMended(service, LARGE);
      },
    ));

  test('in a media type: it is not sent', () =>
    afterHarm(
      async (dir) => flip(await placeOf(dir, Buffer.from('application/x-small'))),
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(SMALL)), 500, 'integrity');
        await assertServed(service, [LARGE, OTHER]);
        await assertMended(service, SMALL);
      },
    ));

  test('in the header of a record', () =>
    afterHarm(
      async (dir) => {
        const { file, offset } = await placeOf(dir, SMALL.subarray(0, 64));
        await flip({ file, offset: offset - 60 });
      },
      async (service) => {
        assertRefusal(await service.send('GET', pathOf(SMALL)), 500, 'integrity');
        await assertServed(service, [LARGE, OTHER]);
        await assertMended(service, SMALL);
      },
    ));
});

function isReset(error: unknown): undefined {
  assert.equal((error as NodeJS.ErrnoException).code, 'ECONNRESET');
}

/** The run files of the index, wherever it was last rebuilt. */
async function runsIn(dir: string): Promise<string[]> {
  const names = await Promise.all(
    ['index', 'index.next'].map(async (index) => {
      const files = await readdir(join(dir, index)).catch(() => []);
      return files.filter((name) => name.endsWith('.run')).map((name) => join(dir, index, name));
    }),
  );
  return names.flat();
}

describe('the index', () => {
  test('a bit of it flipped anywhere: no object is missing or wrong, and all are served once it is rebuilt', async () => {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    {
      await using service = await startService({ dir });
      for (const bytes of [SMALL, LARGE, OTHER]) await service.put(bytes);
      await service.storage.drain();
    }
    for (let part = 0; part < 16; part++) {
      const [file] = await runsIn(dir);
      const { size } = await stat(file!);
      await flip({ file: file!, offset: Math.floor((size * part) / 16) + 3 });
      await using service = await startService({ dir });
      for (const bytes of [SMALL, LARGE, OTHER]) {
        await eventually('the object is served', async () => {
          // A body whose later chunks cannot be looked up is cut off.
          const reply = await service.send('GET', pathOf(bytes)).catch(isReset);
          if (reply === undefined) return false;
          if (reply.status !== 200) {
            assertRefusal(reply, 503, 'not_ready');
            return false;
          }
          assert.ok(reply.body.equals(bytes));
          return true;
        });
      }
      await service.storage.drain();
    }
  });

  test('deleted: it is rebuilt', () =>
    afterHarm(
      (dir) => rm(join(dir, 'index'), { recursive: true }),
      async (service) => {
        await assertServed(service, [SMALL, LARGE, OTHER]);
        assert.equal((await service.send('HEAD', pathOf(LARGE))).status, 200);
      },
    ));
});

describe('a segment', () => {
  test('truncated: the lost objects are reported, the rest is served', () =>
    afterHarm(
      async (dir) => {
        // The last object lies at the end.
        const { file, offset } = await placeOf(dir, OTHER.subarray(0, 64));
        await truncate(file, offset + 100);
      },
      async (service) => {
        await assertServed(service, [SMALL, LARGE]);
        const reply = await service.send('GET', pathOf(OTHER));
        assert.ok(reply.status === 404 || reply.status === 500, reply.text);
        assert.ok(
          service.lines.some((line) => /lost|torn|damage/.test(line)),
          'the loss is logged',
        );
        await service.put(OTHER);
        await assertServed(service, [OTHER]);
      },
    ));

  test('truncated while the service runs: objects that are stored afterwards are safe', async () => {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    const later = bytesOf(100_000, 4);
    {
      await using service = await startService({ dir });
      for (const bytes of [SMALL, OTHER, LARGE]) await service.put(bytes);
      const { file, offset } = await placeOf(dir, LARGE.subarray(1900 * KIB, 1900 * KIB + 64));
      // The manifest lay behind it.
      await truncate(file, offset);
      assertRefusal(await service.send('GET', pathOf(LARGE)), 500, 'integrity');
      await assertServed(service, [SMALL, OTHER]);
      await service.put(later);
      await assertServed(service, [later]);
    }
    await using service = await startService({ dir });
    await assertServed(service, [SMALL, OTHER, later]);
    // A chunk that is known is not stored again; that it is lost shows when it is read. So it takes a few rounds.
    await eventually('it is whole again', async () => {
      await service.put(LARGE);
      const reply = await service.send('GET', pathOf(LARGE)).catch(() => undefined);
      return reply?.body.equals(LARGE) === true;
    });
  });
});

test('an object that is found damaged is no longer served from memory', async () => {
  await using service = await startService();
  await service.put(SMALL);
  await assertServed(service, [SMALL, SMALL]);
  const hits = await service.metric('storage_cache_hits_total{cache="answers"}');
  assert.ok(hits > 0, 'it is hot');
  await flip(await placeOf(service.dir, SMALL.subarray(0, 64)));
  const { volume } = service.storage.engine;
  const id = Buffer.from(addressOf(SMALL).slice(3), 'hex');
  await assert.rejects(volume.get('object', id, new AbortController().signal), { code: 'integrity' });
  assertRefusal(await service.send('GET', pathOf(SMALL)), 500, 'integrity');
});
