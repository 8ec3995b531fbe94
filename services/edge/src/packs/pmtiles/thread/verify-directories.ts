/**
 * Walks all directories of a pack and verifies every entry.
 *
 * Contract: `validation` with the reason if a directory or an entry is wrong, if directories are nested too deeply, if leaves
 * overlap, or if the counts of the header are false. Ids of a leaf lie between its entry and the next one, so a directory
 * that refers to itself or is referred to twice is refused.
 * Bound: one path of directories in memory. The leaves read have in all at most the bytes of their section.
 */
import { RonError } from '@ron/kernel/core';
import { Pace } from '../../hashes/thread/hash-file.ts';
import { decompress } from '../decompress.ts';
import { decodeDirectory, DIRECTORY_BYTES_MAX, type Directory, type DirectoryLimits } from '../directory.ts';
import type { PmtilesHeader, Section } from '../header.ts';
import { DIRECTORIES_DEEP_MAX, rootLimits } from '../tile-ids.ts';
import type { VerifiedReader } from './verified-reader.ts';

/** Returns the number of addressed tiles. */
export async function verifyDirectories(reader: VerifiedReader, header: PmtilesHeader): Promise<number> {
  const walk = new Walk(reader, header);
  await walk.directory(header.root, rootLimits(header), 1);
  walk.requireCounts();
  return walk.addressed;
}

class Walk {
  readonly #reader: VerifiedReader;
  readonly #header: PmtilesHeader;
  readonly #pace = new Pace();
  addressed = 0;
  #entries = 0;
  #leaf_bytes = 0;

  constructor(reader: VerifiedReader, header: PmtilesHeader) {
    this.#reader = reader;
    this.#header = header;
  }

  async directory({ offset, length }: Section, limits: DirectoryLimits, depth: number): Promise<void> {
    if (length > DIRECTORY_BYTES_MAX)
      throw invalid(`a directory has ${length} bytes, more than ${DIRECTORY_BYTES_MAX}`);
    const stored = this.#reader.read(offset, length);
    const bytes = await decompress(stored, this.#header.directory_codec, DIRECTORY_BYTES_MAX, 'a directory');
    const directory = await decodeDirectory(bytes, limits);
    await this.#pace.rest();
    for (let at = 0; at < directory.count; at++) {
      if (directory.runs[at] === 0) await this.#leaf(directory, at, depth + 1);
      else {
        this.addressed += directory.runs[at]!;
        this.#entries += 1;
      }
    }
  }

  async #leaf(parent: Directory, at: number, depth: number): Promise<void> {
    if (depth > DIRECTORIES_DEEP_MAX) throw invalid(`directories are nested more than ${DIRECTORIES_DEEP_MAX} deep`);
    const { leaves } = this.#header;
    const length = parent.lengths[at]!;
    this.#leaf_bytes += length;
    if (this.#leaf_bytes > leaves.length) throw invalid('leaf directories overlap');
    const limits = { ...rootLimits(this.#header), first_id: parent.ids[at]!, end_id: parent.leafEnd(at) };
    await this.directory({ offset: leaves.offset + parent.offsets[at]!, length }, limits, depth);
  }

  requireCounts(): void {
    const { counts } = this.#header;
    requireCount('addressed tiles', counts.addressed, this.addressed);
    requireCount('tile entries', counts.entries, this.#entries);
    if (counts.contents > this.#entries) {
      throw invalid(`the header states ${counts.contents} tile contents for ${this.#entries} entries`);
    }
  }
}

function requireCount(what: string, stated: number, counted: number): void {
  if (stated !== 0 && stated !== counted) {
    throw invalid(`the header states ${stated} ${what}, the directories have ${counted}`);
  }
}

const invalid = (problem: string): RonError => new RonError('validation', problem);
