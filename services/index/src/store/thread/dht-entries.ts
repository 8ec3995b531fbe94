/**
 * Records that this node keeps for the DHT: providers and signed names, each with a subject and an expiry.
 *
 * Contract: `dhtGet` and `dhtQuery` return no expired record. `dhtPut` of an existing key replaces value and expiry; the
 * subject that created it stays charged. A put beyond a quota first removes expired records, then is refused.
 */
import type { DatabaseSync } from 'node:sqlite';
import { assert, isRonError } from '@ron/kernel/core';
import type { DhtEntry } from '../index-store.ts';
import type { DhtPutInit, Reads, Writes } from './calls.ts';
import type { Parties } from './parties.ts';
import { coversProviders, formatProviderKey, parseProviderKey } from './provider-key.ts';

/** Expired rows that a put removes before it is refused. */
const PURGE_ROWS = 256;
/** Behind every character of a key. */
const KEY_END = '\u{10ffff}';

interface ProviderRow {
  readonly hash: Uint8Array;
  readonly name: string;
  readonly value: Uint8Array;
}

export function dhtReads(db: DatabaseSync): Pick<Reads, 'dhtGet' | 'dhtQuery'> {
  const entry = db.prepare('SELECT value FROM entry WHERE key = ? AND expires_ms > ?');
  const entries = db.prepare(
    'SELECT key, value FROM entry WHERE key >= ? AND key < ? AND expires_ms > ? ORDER BY key LIMIT ?',
  );
  const provider = db.prepare(
    'SELECT value FROM provider WHERE hash = ? AND peer = (SELECT id FROM party WHERE name = ?) AND expires_ms > ?',
  );
  const providers = db.prepare(
    `SELECT p.hash, q.name, p.value FROM provider p JOIN party q ON q.id = p.peer
     WHERE p.hash = ? AND p.expires_ms > ? ORDER BY p.peer LIMIT ?`,
  );
  const allProviders = db.prepare(
    `SELECT p.hash, q.name, p.value FROM provider p JOIN party q ON q.id = p.peer
     WHERE p.expires_ms > ? ORDER BY p.hash, p.peer LIMIT ?`,
  );
  const asEntry = ({ hash, name, value }: ProviderRow): DhtEntry => ({ key: formatProviderKey(hash, name), value });

  const queryProviders = (prefix: string, now_ms: number, limit: number): DhtEntry[] => {
    const key = parseProviderKey(prefix);
    if (key === undefined) {
      if (!coversProviders(prefix)) return [];
      return (allProviders.all(now_ms, limit) as unknown as ProviderRow[]).map(asEntry);
    }
    const rows = (providers.all(key.hash, now_ms, limit) as unknown as ProviderRow[]).map(asEntry);
    return key.peer === undefined ? rows : rows.filter((row) => row.key.startsWith(prefix));
  };

  return {
    dhtGet: (key, now_ms) => {
      const parsed = parseProviderKey(key);
      const row = parsed?.peer === undefined ? entry.get(key, now_ms) : provider.get(parsed.hash, parsed.peer, now_ms);
      return (row as { value: Uint8Array } | undefined)?.value;
    },
    dhtQuery: (prefix, { now_ms, limit }) => {
      const found = queryProviders(prefix, now_ms, limit);
      const rest = limit - found.length;
      if (rest === 0) return found;
      return [...found, ...(entries.all(prefix, prefix + KEY_END, now_ms, rest) as unknown as DhtEntry[])];
    },
  };
}

export function dhtWrites(db: DatabaseSync, parties: Parties): Pick<Writes, 'dhtPut' | 'dhtDelete' | 'purgeExpired'> {
  const putEntry = db.prepare(
    `INSERT INTO entry (key, value, subject, expires_ms) VALUES (?, ?, ?, ?)
     ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms`,
  );
  const putProvider = db.prepare(
    `INSERT INTO provider (hash, peer, value, subject, expires_ms) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (hash, peer) DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms`,
  );
  const removeEntry = db.prepare('DELETE FROM entry WHERE key = ?');
  const removeProvider = db.prepare(
    'DELETE FROM provider WHERE hash = ? AND peer = (SELECT id FROM party WHERE name = ?)',
  );
  const purgeProviders = db.prepare(
    `DELETE FROM provider WHERE (hash, peer) IN
       (SELECT hash, peer FROM provider WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)`,
  );
  const purgeEntries = db.prepare(
    'DELETE FROM entry WHERE key IN (SELECT key FROM entry WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)',
  );
  const purgeParties = db.prepare(
    'DELETE FROM party WHERE id IN (SELECT id FROM party WHERE entries = 0 AND uses = 0 LIMIT ?)',
  );

  const put = (key: string, value: Uint8Array, { subject, expires_ms }: DhtPutInit): void => {
    const parsed = parseProviderKey(key);
    const id = parties.idOf(subject);
    const requireQuota = parties.refusal(id);
    if (parsed?.peer === undefined) putEntry.run(key, value, id, expires_ms);
    else putProvider.run(parsed.hash, parties.idOf(parsed.peer), value, id, expires_ms);
    requireQuota();
  };
  const purge = (now_ms: number, limit: number): number => {
    const providers = Number(purgeProviders.run(now_ms, limit).changes);
    const entries = Number(purgeEntries.run(now_ms, limit - providers).changes);
    purgeParties.run(limit);
    return providers + entries;
  };

  return {
    dhtPut: (key, value, init) => {
      assert(init.expires_ms > init.now_ms, 'an entry of the DHT expires in the future');
      db.exec('SAVEPOINT put');
      try {
        put(key, value, init);
      } catch (error) {
        db.exec('ROLLBACK TO put');
        if (!isRonError(error, 'storage_full') || purge(init.now_ms, PURGE_ROWS) === 0) throw error;
        put(key, value, init);
      } finally {
        if (db.isTransaction) db.exec('RELEASE put');
      }
    },
    dhtDelete: (key) => {
      const parsed = parseProviderKey(key);
      if (parsed?.peer === undefined) removeEntry.run(key);
      else removeProvider.run(parsed.hash, parsed.peer);
    },
    purgeExpired: purge,
  };
}
