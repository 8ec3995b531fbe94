/**
 * Writes of names: changes of the log, and names of other nodes.
 *
 * Contract: as `LogChange` and `IndexStore.saveSeen`. The record of a row changes only as `supersedes` allows. Rows of own and trusted keys are never
 * removed (`is_kept`); of the others the `names_seen` last saved ones stay.
 * Bound: HISTORY_MAX older records for a kept name; `dropped` counts those that were removed. Other names have no history.
 */
import type { DatabaseSync } from 'node:sqlite';
import { RonError } from '@ron/kernel/core';
import { HISTORY_MAX, type LogChange, type StoredRecord } from '../index-store.ts';
import { isSameRecord, supersedes } from '../record-order.ts';
import type { Quotas, Writes } from './calls.ts';
import { asRecord, findName, rivalOf, type NameRow } from './name-reads.ts';
import { newEpoch } from './open-database.ts';

/** Names of others that one write removes at most, after the quota was lowered. */
const EVICT_MAX = 16;

export type NameWriteCalls = Pick<Writes, 'apply' | 'resetLog' | 'newEpoch' | 'saveSeen' | 'saveCursor'>;

export function nameWrites(db: DatabaseSync, quotas: () => Quotas): NameWriteCalls {
  const rows = new NameRows(db);
  const sql = statements(db);

  /** Names of the key that were seen before are never forgotten from now on. */
  const trust = (prefix: string, key: Uint8Array): void => {
    sql.setTrust.run(prefix, key);
    sql.keepKey.run(key);
  };
  const change = (given: LogChange): void => {
    if (given.kind === 'name') rows.publish(given.record);
    else if (given.kind === 'fork') rows.fork(given.record, given.rival);
    else if (given.kind === 'pin') (given.isPinned ? sql.addPin : sql.removePin).run(given.target);
    else if (given.kind === 'trust') {
      if (given.key === undefined) sql.removeTrust.run(given.prefix);
      else trust(given.prefix, Uint8Array.fromHex(given.key));
    }
  };

  return {
    apply: (changes, { size, leaf }) => {
      const { applied } = sql.applied.get() as { applied: number };
      if (size <= applied) return;
      const first = size - changes.length;
      if (first > applied) {
        const message = `the database has applied ${applied} entries of the log, and the next ones begin at ${first}`;
        throw new RonError('conflict', message, { reason: 'gap' });
      }
      for (const given of changes.slice(applied - first)) change(given);
      sql.setApplied.run(size, leaf ?? null);
    },
    resetLog: () => {
      db.exec('UPDATE name SET is_own = 0 WHERE is_own = 1; DELETE FROM trust; DELETE FROM pin');
      sql.setApplied.run(0, null);
    },
    newEpoch: () => void sql.setEpoch.run(newEpoch()),
    saveSeen: (record, rival, { isTrusted, replaces }) => {
      if (!rows.swap(record, rival, isTrusted, replaces)) return false;
      if (!isTrusted) rows.evict(quotas().names_seen, EVICT_MAX);
      return true;
    },
    saveCursor: (name, cursor) => {
      if (cursor === undefined) sql.removeCursor.run(name);
      else sql.setCursor.run(name, cursor);
    },
  };
}

/** The rows of names with their rivals and history. */
class NameRows {
  readonly #find: (key: string, label: string) => NameRow | undefined;
  readonly #sql: ReturnType<typeof nameStatements>;

  constructor(db: DatabaseSync) {
    this.#find = findName(db);
    this.#sql = nameStatements(db);
  }

  /** The name is own from now on. */
  publish(record: StoredRecord): void {
    const row = this.#find(record.key, record.label);
    if (row === undefined) return this.#insert(record, { isOwn: true, isKept: true });
    this.#sql.own.run(row.id);
    if (isSameRecord(record, row)) return;
    if (supersedes(record, row)) this.#replace(row, record);
    else if (record.seq >= row.seq) this.#setRival(row.id, record);
  }

  fork(record: StoredRecord, rival: StoredRecord): void {
    const row = this.#find(record.key, record.label);
    if (row !== undefined && !isSameRecord(row, record) && !supersedes(record, row)) return;
    this.#setCurrent(row, record, true);
    this.#setRival(this.#find(record.key, record.label)!.id, rival);
  }

  /** Compare-and-swap; false if another record is current, or the given one does not supersede it. */
  swap(
    record: StoredRecord,
    rival: StoredRecord | undefined,
    isTrusted: boolean,
    replaces: Uint8Array | undefined,
  ): boolean {
    const row = this.#find(record.key, record.label);
    const isExpected =
      row === undefined ? replaces === undefined : replaces !== undefined && isSameRecord(row, { hash: replaces });
    if (!isExpected) return false;
    if (row !== undefined && !isSameRecord(row, record) && !supersedes(record, row)) return false;
    this.#setCurrent(row, record, isTrusted);
    const { id, is_kept } = this.#find(record.key, record.label)!;
    if (is_kept === 0) this.#sql.use.run(this.#nextUse(), id);
    if (rival === undefined) this.#sql.removeRival.run(id);
    else this.#setRival(id, rival);
    return true;
  }

  /** Removes the least recently saved names that are not kept, if there are more than `count_max`. */
  evict(count_max: number, limit: number): void {
    const { strangers } = this.#sql.strangers.get() as { strangers: number };
    const excess = Math.min(strangers - count_max, limit);
    if (excess > 0) this.#sql.evict.run(excess);
  }

  #setCurrent(row: NameRow | undefined, record: StoredRecord, isKept: boolean): void {
    if (row === undefined) return this.#insert(record, { isOwn: false, isKept });
    if (isKept && row.is_kept === 0) this.#sql.keep.run(row.id);
    if (!isSameRecord(row, record)) this.#replace(row, record);
  }

  #insert(record: StoredRecord, { isOwn, isKept }: { isOwn: boolean; isKept: boolean }): void {
    const { key, label, seq, not_after, record: bytes, signature, hash } = record;
    const used = isKept ? 0 : this.#nextUse();
    const flags = [isOwn ? 1 : 0, isKept ? 1 : 0, used];
    this.#sql.insert.run(label, Uint8Array.fromHex(key), seq, not_after, bytes, signature, hash, ...flags);
  }

  /**
   * The former record moves to the history, and so does its rival: seen again, it does not begin the conflict anew. A former
   * record that does not precede the new one is the rival, otherwise a conflict ends.
   */
  #replace(row: NameRow, record: StoredRecord): void {
    const old = asRecord(row, record.key, record.label);
    const rival = rivalOf(row, record.key);
    if (row.is_kept === 1) {
      this.#keepOld(row.id, old);
      if (rival !== undefined && !isSameRecord(rival, record)) this.#keepOld(row.id, rival);
    }
    this.#sql.update.run(record.seq, record.not_after, record.record, record.signature, record.hash, row.id);
    if (old.seq >= record.seq) this.#setRival(row.id, old);
    else this.#sql.removeRival.run(row.id);
  }

  #keepOld(name: number, old: StoredRecord): void {
    const { kept } = this.#sql.countHistory.get(name) as { kept: number };
    const { changes } = this.#sql.addHistory.run(name, old.seq, old.hash, old.not_after, old.record, old.signature);
    if (changes === 0 || kept < HISTORY_MAX) return;
    this.#sql.cutHistory.run(name, name);
    this.#sql.addDropped.run(name);
  }

  #setRival(name: number, rival: StoredRecord): void {
    this.#sql.setRival.run(name, rival.seq, rival.not_after, rival.record, rival.signature, rival.hash);
  }

  #nextUse(): number {
    return (this.#sql.nextUse.get() as { next: number }).next;
  }
}

// oxlint-disable-next-line typescript/explicit-function-return-type -- the prepared statements
function nameStatements(db: DatabaseSync) {
  return {
    insert: db.prepare(
      'INSERT INTO name (label, key, seq, not_after, record, signature, hash, is_own, is_kept, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
    ),
    update: db.prepare('UPDATE name SET seq = ?, not_after = ?, record = ?, signature = ?, hash = ? WHERE id = ?'),
    own: db.prepare('UPDATE name SET is_own = 1, is_kept = 1 WHERE id = ?'),
    keep: db.prepare('UPDATE name SET is_kept = 1 WHERE id = ?'),
    use: db.prepare('UPDATE name SET used = ? WHERE id = ?'),
    nextUse: db.prepare('SELECT coalesce(max(used), 0) + 1 AS next FROM name WHERE is_kept = 0'),
    evict: db.prepare('DELETE FROM name WHERE id IN (SELECT id FROM name WHERE is_kept = 0 ORDER BY used LIMIT ?)'),
    strangers: db.prepare('SELECT strangers FROM state WHERE id = 1'),
    setRival: db.prepare('INSERT OR REPLACE INTO rival VALUES (?, ?, ?, ?, ?, ?)'),
    removeRival: db.prepare('DELETE FROM rival WHERE name = ?'),
    addHistory: db.prepare(
      'INSERT OR IGNORE INTO history (name, seq, hash, not_after, record, signature) VALUES (?, ?, ?, ?, ?, ?)',
    ),
    countHistory: db.prepare('SELECT count(*) AS kept FROM history WHERE name = ?'),
    cutHistory: db.prepare(
      'DELETE FROM history WHERE name = ? AND (seq, hash) IN (SELECT seq, hash FROM history WHERE name = ? ORDER BY seq, hash LIMIT 1)',
    ),
    addDropped: db.prepare('UPDATE name SET dropped = dropped + 1 WHERE id = ?'),
  };
}

// oxlint-disable-next-line typescript/explicit-function-return-type -- the prepared statements
function statements(db: DatabaseSync) {
  return {
    setTrust: db.prepare('INSERT OR REPLACE INTO trust VALUES (?, ?)'),
    keepKey: db.prepare('UPDATE name SET is_kept = 1 WHERE is_kept = 0 AND key = ?'),
    removeTrust: db.prepare('DELETE FROM trust WHERE prefix = ?'),
    addPin: db.prepare('INSERT OR IGNORE INTO pin VALUES (?)'),
    removePin: db.prepare('DELETE FROM pin WHERE target = ?'),
    setCursor: db.prepare('INSERT OR REPLACE INTO cursor VALUES (?, ?)'),
    removeCursor: db.prepare('DELETE FROM cursor WHERE name = ?'),
    applied: db.prepare('SELECT applied FROM state WHERE id = 1'),
    setApplied: db.prepare('UPDATE state SET applied = ?, applied_leaf = ? WHERE id = 1'),
    setEpoch: db.prepare('UPDATE state SET epoch = ? WHERE id = 1'),
  };
}
