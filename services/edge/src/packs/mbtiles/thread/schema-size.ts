/**
 * The size of the schema of a database, measured before SQLite parses it.
 *
 * Contract: refuses a file whose rows of `sqlite_schema` have more than `SCHEMA_BYTES_MAX` in all. SQLite keeps the parsed schema of
 * each open database, about 30 bytes for each byte of it, and this build of SQLite has no limit of memory. A file that is not
 * a database passes: SQLite refuses it by its first bytes.
 * Bound: `PAGES_MAX` pages of the tree, one in memory; a tree that refers to itself ends there.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { readSync } from 'node:fs';
import { refused } from './errors.ts';

/** The schemas of the usual tools have less than 4 KiB. */
export const SCHEMA_BYTES_MAX = 16 * 1024;
const PAGES_MAX = 256;
const MAGIC = Buffer.from('SQLite format 3\0', 'latin1');
const FILE_HEADER_BYTES = 100;
/** The kinds of pages of a table, and the bytes of their headers. */
const INNER = { kind: 5, header_bytes: 12 } as const;
const LEAF = { kind: 13, header_bytes: 8 } as const;
const VARINT_BYTES_MAX = 9;

export function requireSmallSchema(fd: number): void {
  const head = readAt(fd, 0, FILE_HEADER_BYTES);
  if (!head.subarray(0, MAGIC.length).equals(MAGIC)) return;
  const stated_bytes = head.readUInt16BE(16);
  const page_bytes = stated_bytes === 1 ? 65_536 : stated_bytes;
  if (page_bytes < 512 || (page_bytes & (page_bytes - 1)) !== 0) return;
  let bytes = 0;
  const waiting = [1];
  for (let pages = 1; waiting.length > 0; pages += 1) {
    if (pages > PAGES_MAX) throw refused(`its schema has more than ${PAGES_MAX} pages`);
    const number = waiting.pop()!;
    const page = readAt(fd, (number - 1) * page_bytes, page_bytes);
    const start = number === 1 ? FILE_HEADER_BYTES : 0;
    if (page[start] === INNER.kind) waiting.push(...childrenOf(page, start));
    else if (page[start] === LEAF.kind) bytes += rowBytes(page, start);
    else throw refused(`its database is damaged: page ${number} of its schema has an unknown kind`);
    if (bytes > SCHEMA_BYTES_MAX) throw refused(`its schema is above ${SCHEMA_BYTES_MAX / 1024} KiB`);
  }
}

/** Bytes after the end of the file are zero, as for SQLite. */
function readAt(fd: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  readSync(fd, bytes, 0, length, position);
  return bytes;
}

function childrenOf(page: Buffer, start: number): number[] {
  const last = page.readUInt32BE(start + 8);
  return [...cellsOf(page, start, INNER.header_bytes).map((at) => uint32At(page, at)), last];
}

/** The bytes of all rows, with those that are on other pages. */
function rowBytes(page: Buffer, start: number): number {
  return cellsOf(page, start, LEAF.header_bytes).reduce((sum, at) => sum + varintAt(page, at), 0);
}

function cellsOf(page: Buffer, start: number, header_bytes: number): number[] {
  const count = page.readUInt16BE(start + 3);
  const first = start + header_bytes;
  if (first + 2 * count > page.length) throw refused('its database is damaged: a page of its schema has too many rows');
  return Array.from({ length: count }, (_, at) => page.readUInt16BE(first + 2 * at) & (page.length - 1));
}

function uint32At(page: Buffer, at: number): number {
  if (at + 4 > page.length) throw refused('its database is damaged: a row of its schema ends after its page');
  return page.readUInt32BE(at);
}

/** At least the value that SQLite reads, which drops high bits. */
function varintAt(page: Buffer, at: number): number {
  let value = 0;
  for (const byte of page.subarray(at, at + VARINT_BYTES_MAX)) {
    value = value * 128 + (byte & 127);
    if (byte < 128) break;
  }
  return value;
}
