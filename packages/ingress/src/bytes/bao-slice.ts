/** A slice of an object with a proof against its address (`?proof=bao`), as the source of an answer. */
import type { Address } from '@ron/proto';
import type { ByteSource } from './bytes.ts';

export const BAO_MEDIA_TYPE = 'application/vnd.ron.bao';

export interface ProvenObject {
  readonly address: Address;
  /** The leaves of the tree. The reader needs it to verify; a wrong value only makes verification fail. */
  readonly group_bytes: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** The slice that proves `length` bytes from `offset` on. Ranges of it are not supported. */
export function baoSlice(
  { address, group_bytes, headers }: ProvenObject,
  offset: number,
  length: number,
  slice: Pick<ByteSource, 'size' | 'read'>,
): ByteSource {
  return {
    ...slice,
    etag: `"bao:${address}:${offset}:${length}"`,
    media_type: BAO_MEDIA_TYPE,
    headers: { ...headers, 'Ron-Group-Bytes': String(group_bytes) },
    ranges: false,
  };
}
