/**
 * Records that this node keeps for the DHT: providers and signed names, each with a subject and an expiry.
 *
 * Contract: `dhtGet` and `dhtQuery` return no expired record. `dhtPut` of an existing key replaces value and expiry; the
 * subject that created it stays charged. A put beyond a quota first removes expired records, then is refused. Of the providers of
 * an object a query returns a random sample: neither the first nor the most eager peers can hide the others.
 */
import type { DatabaseSync } from 'node:sqlite';
import { assert } from '@ron/kernel/core';
import type { DhtEntry } from '../index-store.ts';
import type { Reads, Writes } from './calls.ts';
import type { EntryKind, Parties } from './parties.ts';
import { coversProviders, formatProviderKey, parseProviderKey, type ProviderKey } from './provider-key.ts';

/** Expired rows that a put removes before it is refused. */
const PURGE_ROWS = 256;
/** Behind every character of a key. */
const KEY_END = '\u{10ffff}';

/** Providers of one object among which a query chooses. */
const SAMPLED_MAX = 10_000;

/** As the triggers count. */
const kindOf = (key: string): EntryKind => (key.startsWith('/dht/') ? 'records' : 'peers');

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
    `SELECT q.name, p.value FROM
       (SELECT peer, value FROM
         (SELECT peer, value FROM provider WHERE hash = ? AND expires_ms > ? LIMIT ${SAMPLED_MAX})
        ORDER BY random() LIMIT ?) p
     JOIN party q ON q.id = p.peer`,
  );
  const allProviders = db.prepare(
    `SELECT p.hash, q.name, p.value FROM provider p JOIN party q ON q.id = p.peer
     WHERE p.expires_ms > ? ORDER BY p.hash, p.peer LIMIT ?`,
  );
  const queryProviders = ({ hash, object, peer }: ProviderKey, now_ms: number, limit: number): DhtEntry[] => {
    const rows = providers.all(hash, now_ms, limit) as unknown as Omit<ProviderRow, 'hash'>[];
    const found = rows.map(({ name, value }): DhtEntry => ({ key: `${object}/${name}`, value }));
    return peer === undefined ? found : found.filter(({ key }) => key.startsWith(`${object}/${peer}`));
  };
  const queryAll = (now_ms: number, limit: number): DhtEntry[] =>
    (allProviders.all(now_ms, limit) as unknown as ProviderRow[]).map(({ hash, name, value }) => ({
      key: formatProviderKey(hash, name),
      value,
    }));

  return {
    dhtGet: (key, now_ms) => {
      const parsed = parseProviderKey(key);
      const row = parsed?.peer === undefined ? entry.get(key, now_ms) : provider.get(parsed.hash, parsed.peer, now_ms);
      return (row as { value: Uint8Array } | undefined)?.value;
    },
    dhtQuery: (prefix, { now_ms, limit }) => {
      const key = parseProviderKey(prefix);
      if (key !== undefined) return queryProviders(key, now_ms, limit);
      const found = coversProviders(prefix) ? queryAll(now_ms, limit) : [];
      const rest = limit - found.length;
      return [...found, ...(entries.all(prefix, prefix + KEY_END, now_ms, rest) as unknown as DhtEntry[])];
    },
  };
}

export function dhtWrites(db: DatabaseSync, parties: Parties): Pick<Writes, 'dhtPut' | 'dhtDelete' | 'purgeExpired'> {
  const updateEntry = db.prepare('UPDATE entry SET value = ?, expires_ms = ? WHERE key = ?');
  const addEntry = db.prepare('INSERT INTO entry (value, expires_ms, key, subject) VALUES (?, ?, ?, ?)');
  const updateProvider = db.prepare('UPDATE provider SET value = ?, expires_ms = ? WHERE hash = ? AND peer = ?');
  const addProvider = db.prepare(
    'INSERT INTO provider (value, expires_ms, hash, peer, subject) VALUES (?, ?, ?, ?, ?)',
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
    'DELETE FROM party WHERE id IN (SELECT id FROM party WHERE providers = 0 AND records = 0 AND uses = 0 LIMIT ?)',
  );

  const purge = (now_ms: number, limit: number): number => {
    const providers = Number(purgeProviders.run(now_ms, limit).changes);
    return providers + Number(purgeEntries.run(now_ms, limit - providers).changes);
  };

  const requireRoom = (kind: EntryKind, subject: number, now_ms: number): void => {
    const refusal = parties.refusal(kind, subject);
    if (refusal === undefined) return;
    if (purge(now_ms, PURGE_ROWS) === 0) throw refusal;
    const again = parties.refusal(kind, subject);
    if (again !== undefined) throw again;
  };

  return {
    dhtPut: (key, value, { subject, expires_ms, now_ms }) => {
      assert(expires_ms > now_ms, 'an entry of the DHT expires in the future');
      const parsed = parseProviderKey(key);
      const [place, update, add] =
        parsed?.peer === undefined
          ? [[key], updateEntry, addEntry]
          : [[parsed.hash, parties.idOf(parsed.peer)], updateProvider, addProvider];
      if (update.run(value, expires_ms, ...place).changes === 1) return;
      const id = parties.idOf(subject);
      requireRoom(parsed?.peer === undefined ? kindOf(key) : 'providers', id, now_ms);
      add.run(value, expires_ms, ...place, id);
    },
    dhtDelete: (key) => {
      const parsed = parseProviderKey(key);
      if (parsed?.peer === undefined) removeEntry.run(key);
      else removeProvider.run(parsed.hash, parsed.peer);
    },
    purgeExpired: (now_ms, limit) => {
      const removed = purge(now_ms, limit);
      purgeParties.run(limit);
      return removed;
    },
  };
}
