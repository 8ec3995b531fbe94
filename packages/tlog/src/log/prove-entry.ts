/** An inclusion proof of an entry, with everything that a client needs to verify it offline (`checkEntryProof`). */
import { RonError } from '@ron/kernel';
import type { TransparencyLog } from './log.ts';

export interface EntryProof {
  readonly log_index: number;
  readonly tree_size: number;
  readonly leaf_hash_b64: string;
  readonly path_b64: readonly string[];
  readonly entry_b64: string;
  /** The signed note. */
  readonly checkpoint: string;
}

/** Throws `not_found` while no checkpoint covers the entry. */
export async function proveEntry(log: TransparencyLog, index: number): Promise<EntryProof> {
  const { checkpoint } = log;
  if (checkpoint === undefined || index >= checkpoint.size) {
    throw new RonError('not_found', `entry ${index} is not covered by a checkpoint`);
  }
  const [{ size, leaf, path }, entry] = await Promise.all([log.proof(index, checkpoint.size), log.entry(index)]);
  return {
    log_index: index,
    tree_size: size,
    leaf_hash_b64: toBase64(leaf),
    path_b64: path.map(toBase64),
    entry_b64: toBase64(entry),
    checkpoint: checkpoint.text,
  };
}

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
