/** Stored objects as HTTP answers: bytes with an entity tag and headers. */
import type { ObjectStore, SmallObject, StoredObject } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { checkAddress, type Address } from '@ron/proto';
import { sliceBytes } from '@ron/simd';
import { baoSlice, CopiedBytes, FastEntry, type ByteSource } from '@ron/ingress';

/** Sent with every object: its bytes never change, and browsers must not run them in this origin. */
const OBJECT_HEADERS = {
  'Cache-Control': 'public, max-age=31536000, immutable',
  Vary: 'Accept-Encoding',
  'X-Content-Type-Options': 'nosniff',
  'Content-Security-Policy': 'sandbox',
} as const;

/** The address in a path. Throws `bad_request` with the reason if it is not valid. */
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

/** The prepared answer of the fast path; undefined unless the whole body is verified and in memory. */
export function fastEntry(object: StoredObject): FastEntry | undefined {
  const ram = object.inMemory;
  return ram === undefined ? undefined : new FastEntry({ ...byteSource(object), ram }, { address: object.address });
}

/** As `fastEntry`, for a small object whose bytes are valid only during the call: they are copied. */
export function fastEntryOf(address: Address, { media_type, whole }: SmallObject): FastEntry {
  const source = new CopiedBytes(whole, { etag: `"${address}"`, media_type, headers: OBJECT_HEADERS });
  return new FastEntry(source, { address });
}

/** A slice that proves `length` bytes from `offset` on. Ranges of it are not supported. */
export function proofSource(object: StoredObject, offset: number, length: number): ByteSource {
  const { address, size, chunk_bytes } = object;
  return baoSlice({ address, group_bytes: chunk_bytes, headers: OBJECT_HEADERS }, offset, length, {
    size: sliceBytes(size, chunk_bytes, offset, length),
    read: (_start, _end, signal) => object.slice(offset, length, signal),
  });
}

const MEDIA_TYPE =
  /^[\w!#$&^.+-]{1,64}\/[\w!#$&^.+-]{1,64}(?:[ \t]*;[ \t]*[\w!#$&^.+-]{1,64}=(?:[\w!#$&^.+-]{1,64}|"[\x20\x21\x23-\x5b\x5d-\x7e]{0,64}"))*$/;

/** The media type to store. Throws 415 if it is not valid, because reads send it back in a header. */
export function mediaTypeFrom(header: string | undefined): string | undefined {
  if (header === undefined || header === '') return undefined;
  if (header.length > 255 || !MEDIA_TYPE.test(header)) {
    throw new RonError('unsupported_media', 'the Content-Type is not a media type');
  }
  return header;
}
