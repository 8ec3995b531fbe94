/** The bytes of an asset as the source of an answer. */
import type { Batch, ByteSource } from '@ron/ingress';
import type { Address } from '@ron/proto';

export interface SourceInit {
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
}

const about = ({ address, size, media_type }: SourceInit) => ({ etag: `"${address}"`, size, media_type });

/** Verified bytes in memory. */
export function ramSource(init: SourceInit, bytes: Uint8Array): ByteSource & { readonly ram: Batch } {
  return {
    ...about(init),
    ram: [bytes],
    async *read(start, end) {
      if (end > start) yield [bytes.subarray(start, end)];
    },
  };
}

/** Bytes on disk, verified as they are read. */
export const diskSource = (init: SourceInit, read: ByteSource['read']): ByteSource => ({ ...about(init), read });
