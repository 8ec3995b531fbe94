/**
 * The thread that verifies PMTiles files. [edge I-7]
 *
 * Contract: a file is verified in full unless a valid sidecar states that it was. Then only its header and its metadata are
 * read, checked by the values of the sidecar. The sidecar is written after a pack passed all checks.
 */
import { RonError } from '@ron/kernel/core';
import type { Address } from '@ron/proto';
import { requireExpected } from '../../hashes/expected-address.ts';
import type { TreeParts } from '../../hashes/group-tree.ts';
import { CHECKED } from '../../hashes/sidecar.ts';
import {
  hashFile,
  openInThread,
  readFully,
  readSidecar,
  requireUnchanged,
  writeSidecar,
  type FileInThread,
} from '../../hashes/thread/hash-file.ts';
import { decompress } from '../decompress.ts';
import { HEADER_BYTES, readHeader, type PmtilesHeader } from '../header.ts';
import { METADATA_BYTES_MAX, readMetadata } from './metadata.ts';
import { verifyDirectories } from './verify-directories.ts';
import { VerifiedReader } from './verified-reader.ts';

export interface VerifiedPmtiles {
  /** Device and inode of the file. */
  readonly identity: string;
  readonly tree: TreeParts;
  readonly header: PmtilesHeader;
  /** Addressed tiles. */
  readonly tiles: number;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Why the sidecar was not written. */
  readonly sidecar_problem: string | undefined;
}

export async function verifyPmtiles(
  path: string,
  sidecar: string | undefined,
  expect: Address | undefined,
): Promise<VerifiedPmtiles> {
  using file = openInThread(path);
  const known = readSidecar(sidecar, file.stamp, CHECKED.pmtiles);
  if (known === undefined) return await verifyInFull(file, sidecar, expect);
  const { tree, tiles } = known;
  requireExpected(tree.address, expect);
  const reader = new VerifiedReader(file.fd, tree);
  const header = readHeader(reader.read(0, Math.min(HEADER_BYTES, tree.size)), tree.size);
  const metadata = await metadataOf(reader, header);
  return { identity: file.identity, tree, header, tiles, metadata, sidecar_problem: undefined };
}

async function verifyInFull(
  file: FileInThread,
  sidecar: string | undefined,
  expect: Address | undefined,
): Promise<VerifiedPmtiles> {
  const { stamp, identity } = file;
  // A file with a wrong header is refused before it is hashed.
  const start = Buffer.alloc(Math.min(HEADER_BYTES, stamp.size));
  readFully(file.fd, start, 0);
  readHeader(start, stamp.size);
  const tree = await hashFile(file);
  requireExpected(tree.address, expect);
  const reader = new VerifiedReader(file.fd, tree);
  const header = readHeader(reader.read(0, HEADER_BYTES), stamp.size);
  const tiles = await verifyDirectories(reader, header);
  const metadata = await metadataOf(reader, header);
  requireUnchanged(file);
  const sidecar_problem =
    sidecar === undefined ? undefined : writeSidecar(sidecar, stamp, { checked: CHECKED.pmtiles, tiles, tree });
  return { identity, tree, header, tiles, metadata, sidecar_problem };
}

async function metadataOf(reader: VerifiedReader, header: PmtilesHeader): Promise<Record<string, unknown>> {
  const { offset, length } = header.metadata;
  if (length === 0) return {};
  if (length > METADATA_BYTES_MAX) {
    throw new RonError('validation', `the metadata has ${length} bytes, more than ${METADATA_BYTES_MAX}`);
  }
  const stored = reader.read(offset, length);
  return readMetadata(await decompress(stored, header.directory_codec, METADATA_BYTES_MAX, 'the metadata'));
}
