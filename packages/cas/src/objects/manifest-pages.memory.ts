/**
 * A program that opens `COUNT` objects of 128 MiB and reads the first chunk of each; prints the memory that stays in use. Run
 * with --expose-gc by manifest-pages.test.ts.
 */
import { NEVER } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { BLAKE3_BYTES, combineSubtrees } from '@ron/simd';
import { ENTRY_BYTES } from './entry-tree.ts';
import { encodeManifest } from './manifest.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { ObjectStore } from './object-store.ts';
import { RecordType } from '../volume/record-types.ts';
import type { StoredRecord } from '../volume/volume.ts';

const COUNT = Number(process.argv[2]);
const CHUNKS = 2048;
const CHUNK_BYTES = 64 * 1024;

function pageOf(seed: number): Buffer {
  const page = Buffer.alloc(CHUNKS * ENTRY_BYTES, 7);
  for (let index = 0; index < CHUNKS; index++)
    page.writeUInt32LE(seed * CHUNKS + index, index * ENTRY_BYTES + BLAKE3_BYTES);
  return page;
}

function addressOfPage(page: Buffer): Uint8Array {
  const values = Array.from({ length: CHUNKS }, (_, index) =>
    page.subarray(index * ENTRY_BYTES + BLAKE3_BYTES, (index + 1) * ENTRY_BYTES),
  );
  return combineSubtrees(values);
}

const idOf = (seed: number): Buffer => {
  const id = Buffer.alloc(BLAKE3_BYTES);
  id.writeUInt32LE(seed);
  return id;
};

/** Generates the pages on demand, so that it keeps none. */
class PagesOnDemand extends MemoryVolume {
  readonly seeds = new Map<string, number>();

  override has(): boolean {
    return true;
  }

  override get(kind: string, id: Uint8Array): Promise<StoredRecord | undefined> {
    const meta = new Uint8Array(0);
    if (kind === 'content') {
      const payload = pageOf(Buffer.from(id).readUInt32LE());
      return Promise.resolve({ type: RecordType.page, payload, meta });
    }
    const seed = this.seeds.get(formatAddress(id))!;
    const pages = [{ id: idOf(seed), subtree: new Uint8Array(BLAKE3_BYTES) }];
    const payload = encodeManifest({ size: CHUNKS * CHUNK_BYTES, chunk_bytes: CHUNK_BYTES, pages });
    return Promise.resolve({ type: RecordType.manifest, payload, meta });
  }
}

function memory(): number {
  for (let round = 0; round < 4; round++) globalThis.gc!();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const volume = new PagesOnDemand({ bytes_max: 1 });
const addresses = Array.from({ length: COUNT }, (_, seed) => {
  const address = formatAddress(addressOfPage(pageOf(seed)));
  volume.seeds.set(address, seed);
  return address;
});
const store = new ObjectStore({ volume });
const before = memory();
for (const address of addresses) {
  const object = (await store.open(address, NEVER))!;
  await object.chunkIds(0, 1, NEVER);
}
console.log(JSON.stringify({ grown_bytes: memory() - before, charged_bytes: store.manifest_bytes }));
