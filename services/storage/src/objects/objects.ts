/**
 * Objects as HTTP sees them: a stored object becomes bytes with a tag and headers, a body becomes a stored object.
 */
import type { FinishInit, ObjectStore, SmallObject, StoredObject, Written } from '@ron/cas';
import { NEVER, releaseBytes, RonError, sched, type Deadline } from '@ron/kernel';
import { checkAddress, type Address, type Durability, type ObjectReceipt } from '@ron/proto';
import { sliceBytes } from '@ron/simd';
import { CopiedBytes, FastEntry, type ByteSource } from '@ron/ingress';
import type { Foreground } from './foreground.ts';
import { inSteps } from './steps.ts';

export const BAO_MEDIA_TYPE = 'application/vnd.ron.bao';

/** Sent with every object: it never changes, and whatever it is, it does not run here. */
const OBJECT_HEADERS = {
  'Cache-Control': 'public, max-age=31536000, immutable',
  Vary: 'Accept-Encoding',
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': 'sandbox',
} as const;

/** The address in a path, or a 400 that says what is wrong with it. */
export function addressFrom(text: string): Address {
  const result = checkAddress(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.address;
}

export async function openObject(
  store: ObjectStore,
  address: Address,
  signal: AbortSignal,
  onOpened?: (object: StoredObject) => void,
): Promise<StoredObject> {
  const object = await store.open(address, signal, onOpened);
  if (object === undefined) throw new RonError('not_found', `${address} is not stored here`);
  return object;
}

export function byteSource(object: StoredObject): ByteSource {
  return {
    size: object.size,
    etag: `"${object.address}"`,
    media_type: object.media_type,
    headers: OBJECT_HEADERS,
    ...(object.whole !== undefined && { ram: [object.whole] }),
    read: (start, end, signal) => object.read(start, end, signal),
  };
}

/** What the fast path answers with: only for objects whose whole body is verified and in memory. */
export function fastEntry(object: StoredObject): FastEntry | undefined {
  const ram = object.inMemory;
  return ram === undefined ? undefined : new FastEntry({ ...byteSource(object), ram }, { address: object.address });
}

/** The same of a small object whose bytes are not ours to keep. */
export function fastEntryOf(address: Address, { media_type, whole }: SmallObject): FastEntry {
  const source = new CopiedBytes(whole, { etag: `"${address}"`, media_type, headers: OBJECT_HEADERS });
  return new FastEntry(source, { address });
}

/** A slice that proves `length` bytes from `offset` on. It is always sent whole. */
export function proofSource(object: StoredObject, offset: number, length: number): ByteSource {
  return {
    size: sliceBytes(object.size, object.chunk_bytes, offset, length),
    etag: `"bao:${object.address}:${offset}:${length}"`,
    media_type: BAO_MEDIA_TYPE,
    // A reader has to know how the tree is cut; a wrong number only makes the proof fail.
    headers: { ...OBJECT_HEADERS, 'Ron-Group-Bytes': String(object.chunk_bytes) },
    ranges: false,
    read: (_start, _end, signal) => object.slice(offset, length, signal),
  };
}

export function receiptOf(written: Written, durability: Durability): ObjectReceipt {
  return { address: written.address, size: written.size, durability };
}

/** Reads a body to its end and stores it. What the disk takes is bounded by a deadline from `step` each time. */
export async function storeBody(
  store: ObjectStore,
  body: AsyncIterable<Uint8Array>,
  init: FinishInit,
  step: () => Deadline,
  foreground: Foreground,
): Promise<Written> {
  const writer = store.writer();
  const onWritten = foreground.putWrites();
  try {
    return await inSteps(body, step, async (pieces, signal) => {
      for await (const bytes of pieces) {
        const began_ms = sched.now_ms();
        await writer.write(bytes, signal);
        onWritten(bytes.length, sched.now_ms() - began_ms);
      }
      const ended_ms = sched.now_ms();
      const written = await writer.finish(init, signal);
      foreground.putEnded(sched.now_ms() - ended_ms);
      return written;
    });
  } finally {
    writer.abort();
  }
}

/** Stores a body that is all here, and gives its memory back. */
export async function storeWhole(
  store: ObjectStore,
  bytes: Uint8Array,
  init: FinishInit,
  step: () => Deadline,
  foreground: Foreground,
): Promise<Written> {
  using due = step();
  const began_ms = sched.now_ms();
  // Once it waits for its sync it is as good as stored: a client that gave up waiting may ask again.
  const written = await due.within(store.put(bytes, init, NEVER));
  foreground.putEnded(sched.now_ms() - began_ms);
  if (store.volume.isDoneWithPayloads) releaseBytes(bytes);
  return written;
}

const MEDIA_TYPE =
  /^[\w!#$&^.+-]{1,64}\/[\w!#$&^.+-]{1,64}(?:\s*;\s*[\w!#$&^.+-]{1,64}=(?:[\w!#$&^.+-]{1,64}|"[\x20\x21\x23-\x5b\x5d-\x7e]{0,64}"))*$/;

/** The media type to store, or a 415: it comes back in a header, so it must be one. */
export function mediaTypeFrom(header: string | undefined): string | undefined {
  if (header === undefined || header === '') return undefined;
  if (header.length > 255 || !MEDIA_TYPE.test(header)) {
    throw new RonError('unsupported_media', 'the Content-Type is not a media type');
  }
  return header;
}
