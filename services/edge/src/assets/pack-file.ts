/**
 * The file of a PMTiles pack as an answer: whole, in ranges, or a slice with a proof against the address.
 *
 * Contract: every byte is verified before it is sent. The pack stays open until the transfer ends, even if it is replaced.
 */
import { baoSlice, type Batch, type ByteSource } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { encodeSlice, sliceBytes, type Tree } from '@ron/simd';
import type { OpenPack } from '../packs/pack.ts';
import type { Mount } from '../packs/packs.ts';
import type { ProofRange } from './asset-target.ts';
import { hitStatus } from './cache-status.ts';
import type { DiskReads } from './disk-reads.ts';
import { TILE_HEADERS } from './tile-answer.ts';

const MEDIA_TYPE = 'application/vnd.pmtiles';
const GROUP_BYTES = 64 * 1024;

export function packFile(mount: Mount, reads: DiskReads, proof: ProofRange | undefined): ByteSource {
  const { pack } = mount;
  const { address, size } = pack.info;
  const held = heldReads(mount, reads);
  if (proof === undefined) {
    return {
      size,
      etag: `"${address}"`,
      media_type: MEDIA_TYPE,
      headers: TILE_HEADERS,
      cache_status: hitStatus('pack'),
      read: (start, end, signal) => held(signal, () => readOf(pack)(start, end, signal)),
    };
  }
  const { offset, length = size } = proof;
  const slice = baoSlice({ address, group_bytes: GROUP_BYTES, headers: TILE_HEADERS }, offset, length, {
    size: sliceBytes(size, GROUP_BYTES, offset, length),
    read: (_start, _end, signal) => held(signal, () => encodeSlice(treeOf(pack), offset, length, signal)),
  });
  return { ...slice, cache_status: hitStatus('pack') };
}

function treeOf(pack: OpenPack): Tree {
  const { size } = pack.info;
  const { groups } = pack;
  if (groups === undefined) throw notPmtiles();
  return {
    size,
    group_bytes: GROUP_BYTES,
    value: (first, count) => Promise.resolve(groups.value(first, count)),
    groups: (first, last, signal) =>
      readOf(pack)(first * GROUP_BYTES, Math.min(size, (last + 1) * GROUP_BYTES), signal),
  };
}

function readOf(pack: OpenPack): NonNullable<OpenPack['read']> {
  if (pack.read === undefined) throw notPmtiles();
  return (start, end, signal) => pack.read!(start, end, signal);
}

export const notPmtiles = (): RonError => new RonError('not_found', 'only packs in the format PMTiles have this file');

/** Holds the mount from the call on, before the first batch is requested, and until the iterator is closed. */
function heldReads(mount: Mount, reads: DiskReads) {
  return (signal: AbortSignal, open: () => AsyncIterable<Batch>): AsyncIterable<Batch> => {
    const hold = mount.hold();
    const source = reads.batches(signal, open)[Symbol.asyncIterator]();
    const close = async (): Promise<IteratorResult<Batch>> => {
      await source.return?.().finally(() => hold[Symbol.dispose]());
      return { done: true, value: undefined };
    };
    // The transfer closes its iterator in any case, even one that has ended.
    return { [Symbol.asyncIterator]: () => ({ next: () => source.next(), return: close }) };
  };
}
