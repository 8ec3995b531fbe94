/** Reads of names, their history, the trust list, the pins and the cursors. */
import type { DatabaseSync } from 'node:sqlite';
import { RonError } from '@ron/kernel/core';
import { blake3 } from '@ron/simd';
import type { NamePosition, StoredName, StoredRecord, TrustedKey } from '../index-store.ts';
import type { Reads } from './calls.ts';

type RecordRow = Omit<StoredRecord, 'key' | 'label'>;

export interface NameRow extends RecordRow {
  readonly id: number;
  readonly key: Uint8Array;
  readonly label: string;
  readonly is_own: number;
  readonly is_kept: number;
  readonly dropped: number;
  readonly rival_seq: number | null;
  readonly rival_not_after: number;
  readonly rival_record: Uint8Array;
  readonly rival_signature: Uint8Array;
  readonly rival_hash: Uint8Array;
}

const NAME = `
SELECT n.id, n.key, n.label, n.seq, n.not_after, n.record, n.signature, n.hash, n.is_own, n.is_kept, n.dropped,
  r.seq AS rival_seq, r.not_after AS rival_not_after, r.record AS rival_record, r.signature AS rival_signature,
  r.hash AS rival_hash
FROM name n LEFT JOIN rival r ON r.name = n.id`;
/** Behind every character of a label. */
const LABEL_END = '\u007f';
/** Behind `/`. */
const SEGMENT_END = '0';
const NO_KEY = new Uint8Array(0);

type NameReadCalls = Pick<
  Reads,
  'name' | 'history' | 'names' | 'countNames' | 'highestSeq' | 'trust' | 'pins' | 'readCursor'
>;

export function findName(db: DatabaseSync): (key: string, label: string) => NameRow | undefined {
  const statement = db.prepare(`${NAME} WHERE n.label = ? AND n.key = ?`);
  return (key, label) => statement.get(label, Uint8Array.fromHex(key)) as NameRow | undefined;
}

export function nameReads(db: DatabaseSync): NameReadCalls {
  const find = findName(db);
  const older = db.prepare(
    'SELECT seq, not_after, record, signature, hash FROM history WHERE name = ? ORDER BY seq DESC, hash LIMIT ?',
  );
  const owned = db.prepare('SELECT names FROM signer WHERE key = ?');
  const trusted = db.prepare('SELECT prefix, key FROM trust ORDER BY prefix');
  const pinned = db.prepare('SELECT target FROM pin ORDER BY target');
  const cursor = db.prepare('SELECT value FROM cursor WHERE name = ?');
  return {
    name: (key, label) => asName(find(key, label)),
    history: (key, label, limit) => {
      const row = find(key, label);
      if (row === undefined) return [];
      return (older.all(row.id, limit) as unknown as RecordRow[]).map((old) => asRecord(old, key, label));
    },
    names: listNames(db),
    countNames: (key) => (owned.get(Uint8Array.fromHex(key)) as { names: number } | undefined)?.names ?? 0,
    highestSeq: (key, label) => {
      const row = find(key, label);
      return row === undefined ? undefined : { seq: row.seq, hash: row.hash };
    },
    trust: () =>
      (trusted.all() as { prefix: string; key: Uint8Array }[]).map(({ prefix, key }): TrustedKey => ({
        prefix,
        key: key.toHex(),
      })),
    pins: () => (pinned.all() as { target: string }[]).map(({ target }) => target),
    readCursor: (name) => (cursor.get(name) as { value: Uint8Array } | undefined)?.value,
  };
}

/** Own names in order. Labels such as `a-b` sort between `a` and `a/b`, so a prefix is two ranges: itself, and those below. */
function listNames(db: DatabaseSync): Reads['names'] {
  const page = db.prepare(
    `${NAME} WHERE n.is_own = 1 AND (n.label, n.key) > (?, ?) AND n.label < ? ORDER BY n.label, n.key LIMIT ?`,
  );
  const range = (from: string, end: string, after: NamePosition | undefined, limit: number): StoredName[] => {
    const isAfter = after !== undefined && after.label >= from;
    const [label, key] = isAfter ? [after.label, Uint8Array.fromHex(after.key)] : [from, NO_KEY];
    return (page.all(label, key, end, limit) as unknown as NameRow[]).map((row) => asName(row)!);
  };
  return (prefix, after, limit) => {
    if (prefix === '') return range('', LABEL_END, after, limit);
    // The smallest string behind `prefix` itself.
    const itself = range(prefix, `${prefix}\0`, after, limit);
    return [...itself, ...range(`${prefix}/`, prefix + SEGMENT_END, after, limit - itself.length)];
  };
}

/** Throws `integrity` for a row that the disk changed: then the database is rebuilt from the log. */
export function asRecord(row: RecordRow, key: string, label: string): StoredRecord {
  const { seq, not_after, record, signature, hash } = row;
  if (Buffer.compare(blake3(record), hash) !== 0)
    throw new RonError('integrity', `the index database is damaged: a record of ${label} does not match its hash`);
  return { key, label, seq, not_after, record, signature, hash };
}

export function asName(row: NameRow | undefined): StoredName | undefined {
  if (row === undefined) return undefined;
  const { label, dropped } = row;
  const key = row.key.toHex();
  return { ...asRecord(row, key, label), isOwn: row.is_own === 1, dropped, rival: rivalOf(row, key) };
}

export function rivalOf(row: NameRow, key: string): StoredRecord | undefined {
  if (row.rival_seq === null) return undefined;
  const rival = {
    seq: row.rival_seq,
    not_after: row.rival_not_after,
    record: row.rival_record,
    signature: row.rival_signature,
    hash: row.rival_hash,
  };
  return asRecord(rival, key, row.label);
}
