/** The thread that hashes files. [edge I-7] */
import { RonError } from '@ron/kernel/core';
import type { TreeParts } from '../group-tree.ts';
import { CHECKED } from '../sidecar.ts';
import { hashFile, openInThread, readSidecar, requireUnchanged, writeSidecar } from './hash-file.ts';

export interface HashedFile {
  readonly size: number;
  readonly inode: bigint;
  readonly mtime_ns: bigint;
  /** Device and inode. */
  readonly identity: string;
  readonly tree: TreeParts;
  /** Why the sidecar was not written. */
  readonly sidecar_problem: string | undefined;
}

/** The hashes of a file, from its sidecar if that is valid; otherwise the sidecar is written. */
export async function hashesOfFile(path: string, sidecar: string | undefined): Promise<HashedFile> {
  using file = openInThread(path);
  const { stamp, identity } = file;
  if (stamp.size === 0) throw new RonError('validation', 'the file is empty');
  const known = readSidecar(sidecar, stamp, CHECKED.hashes);
  if (known !== undefined) return { ...stamp, identity, tree: known.tree, sidecar_problem: undefined };
  const tree = await hashFile(file);
  requireUnchanged(file);
  const problem =
    sidecar === undefined ? undefined : writeSidecar(sidecar, stamp, { checked: CHECKED.hashes, tiles: 0, tree });
  return { ...stamp, identity, tree, sidecar_problem: problem };
}
