/**
 * Checks the size of an LMDB file before it is mapped: a page beyond the end of the file would end the process with a signal.
 *
 * Contract: throws `integrity` for a file that is not LMDB's, and for one that was cut. A missing or empty file is new. Reads
 * only. LMDB may leave a few allocated pages at the end unwritten, so `UNWRITTEN_PAGES_MAX` may be missing there.
 */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { RonError } from '@ron/kernel';

const MAGIC = 0xbe_ef_c0_de;
const META_BYTES = 160;
const AT = { magic: 24, page_bytes: 48, free_root: 88, main_root: 136, last_page: 144, transaction: 152 } as const;
const UNWRITTEN_PAGES_MAX = 256;
/** The number of a tree that has no pages. */
const NO_PAGE = 0xff_ff_ff_ff_ff_ff_ff_ffn;

interface Meta {
  readonly page_bytes: number;
  readonly pages: readonly bigint[];
  readonly last_page: bigint;
  readonly transaction: bigint;
}

export async function requireWhole(dir: string): Promise<void> {
  const path = join(dir, 'data.mdb');
  const damaged = (why: string): RonError =>
    new RonError('integrity', `${path} ${why}: restore it from a backup`, { op: 'sealed_file' });
  let file;
  try {
    file = await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  await using whole = file;
  const { size } = await whole.stat();
  if (size === 0) return;
  const first = await metaAt(0);
  const second = first === undefined ? undefined : await metaAt(first.page_bytes);
  if (first === undefined || second === undefined) throw damaged('is damaged, or another program made it');
  const { page_bytes, pages, last_page } = first.transaction > second.transaction ? first : second;
  const end = BigInt(Math.floor(size / page_bytes));
  const isCut = pages.some((page) => page !== NO_PAGE && page >= end);
  if (isCut || last_page >= end + BigInt(UNWRITTEN_PAGES_MAX)) throw damaged('was truncated');

  async function metaAt(position: number): Promise<Meta | undefined> {
    const { bytesRead, buffer } = await whole.read(Buffer.alloc(META_BYTES), 0, META_BYTES, position);
    if (bytesRead < META_BYTES || buffer.readUInt32LE(AT.magic) !== MAGIC) return undefined;
    return {
      page_bytes: buffer.readUInt32LE(AT.page_bytes),
      pages: [buffer.readBigUInt64LE(AT.free_root), buffer.readBigUInt64LE(AT.main_root)],
      last_page: buffer.readBigUInt64LE(AT.last_page),
      transaction: buffer.readBigUInt64LE(AT.transaction),
    };
  }
}
