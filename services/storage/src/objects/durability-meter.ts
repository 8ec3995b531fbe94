/**
 * Measures the durability of objects, for receipts and manifests.
 *
 * Contract: `copies` counts volumes that hold the record durably at the time of the call. A chunk that a stripe secures
 * counts as `target`, because it survives the same losses. In amnesia nothing is `fsynced`.
 */
import { addressBytes, type Address, type Durability } from '@ron/proto';
import type { StorageConfig } from '../config.ts';
import type { Volumes } from '../volumes/volumes.ts';

export interface DurabilityMeter {
  copiesOf(kind: 'object' | 'content', id: Uint8Array): number;
  /** The durability of an object whose weakest part has this many copies. */
  durability(copies: number): Durability;
}

export function durabilityMeter(volumes: Volumes, config: StorageConfig): DurabilityMeter {
  const { volume, set, isSingle } = volumes;
  const target = isSingle ? 1 : set.lone_copies;
  const singleCopies: DurabilityMeter['copiesOf'] = (kind, id) => (volume.isDurable(kind, id) ? 1 : 0);
  const setCopies: DurabilityMeter['copiesOf'] = (kind, id) => {
    const copies = set.copiesOf(kind, id);
    return kind === 'content' && copies < target && set.stripes.secures(id) ? target : copies;
  };
  return {
    copiesOf: isSingle ? singleCopies : setCopies,
    durability: (copies) => ({ fsynced: copies > 0 && !config.amnesia.enabled, copies, target }),
  };
}

/** The durability in a receipt: that of the record that makes the object visible. Its chunks were durable before. */
export const receiptDurability = (meter: DurabilityMeter, address: Address): Durability =>
  meter.durability(meter.copiesOf('object', addressBytes(address)));
