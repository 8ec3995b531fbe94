/**
 * Own objects, as storage announces them.
 *
 * Contract: an announcement is idempotent and atomic: refused by a quota, it changes nothing. Withdrawals come first, so an
 * address in both lists stays. At most `quotas.providers_max` objects are kept; entries of peers do not count.
 */
import type { DatabaseSync } from 'node:sqlite';
import { addressBytes, formatAddress, type Address, type AnnounceRange } from '@ron/proto';
import { positionOfAddress } from '../../dht/keys.ts';
import { RANGE_WITHDRAWN_MAX } from '../index-store.ts';
import type { Quotas, Reads, Writes } from './calls.ts';
import { quotaError, type Parties } from './parties.ts';

/** Stored as NULL. */
const COMMON_TYPE = 'application/octet-stream';
const FIRST = new Uint8Array(0);
/** Behind every address. */
const LAST = new Uint8Array(33).fill(0xff);

interface ObjectRow {
  readonly size: number;
  readonly media_type: string | null;
  readonly announced_ms: number;
}

export function objectReads(db: DatabaseSync): Pick<Reads, 'object' | 'objects' | 'countObjects'> {
  const one = db.prepare('SELECT size, media_type, announced_ms FROM object WHERE address = ?');
  const page = db.prepare('SELECT address, position FROM object WHERE position > ? ORDER BY position LIMIT ?');
  const count = db.prepare('SELECT objects FROM state WHERE id = 1');
  return {
    object: (address) => {
      const row = one.get(addressBytes(address)) as ObjectRow | undefined;
      return row === undefined ? undefined : { address, ...row, media_type: row.media_type ?? COMMON_TYPE };
    },
    objects: (cursor, limit) =>
      (page.all(cursor ?? FIRST, limit) as { address: Uint8Array; position: Uint8Array }[]).map((row) => ({
        address: formatAddress(row.address),
        routing_key: row.position,
      })),
    countObjects: () => (count.get() as { objects: number }).objects,
  };
}

export function objectWrites(db: DatabaseSync, parties: Parties, quotas: () => Quotas): Pick<Writes, 'announce'> {
  const put = db.prepare(
    `INSERT INTO object (address, position, size, media_type, announced_ms, subject) VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT (address) DO UPDATE SET size = excluded.size, media_type = excluded.media_type,
       announced_ms = excluded.announced_ms`,
  );
  const known = db.prepare('SELECT 1 FROM object WHERE address = ?');
  const remove = db.prepare('DELETE FROM object WHERE address = ?');
  const others = db.prepare(
    'SELECT address FROM object WHERE address > ? AND address <= ? AND subject = ? ORDER BY address LIMIT ?',
  );

  const count = db.prepare('SELECT objects FROM state WHERE id = 1');

  const requireQuota = (): void => {
    const { objects } = count.get() as { objects: number };
    const { providers_max } = quotas();
    if (objects > providers_max) {
      throw quotaError(`this node would announce ${objects} objects; quotas.providers_max is ${providers_max}`);
    }
  };

  const withdrawOthers = (subject: number, range: AnnounceRange, listed: ReadonlySet<string>): Address[] => {
    const after = range.after === null ? FIRST : addressBytes(range.after);
    const through = range.through === null ? LAST : addressBytes(range.through);
    const rows = others.all(after, through, subject, RANGE_WITHDRAWN_MAX + listed.size) as { address: Uint8Array }[];
    const withdrawn = rows.map(({ address }) => formatAddress(address)).filter((address) => !listed.has(address));
    for (const address of withdrawn) remove.run(addressBytes(address));
    return withdrawn;
  };

  return {
    announce: (subject, entries, withdraw, now_ms, range) => {
      for (const address of withdraw) remove.run(addressBytes(address));
      const id = parties.idOf(subject);
      const added: Address[] = [];
      for (const { address, size, media_type } of entries) {
        const type = media_type === COMMON_TYPE ? null : media_type;
        const bytes = addressBytes(address);
        if (known.get(bytes) === undefined) added.push(address);
        put.run(bytes, positionOfAddress(address), size, type, now_ms, id);
      }
      const listed = new Set<Address>(entries.map(({ address }) => address));
      const withdrawn = range === undefined ? [] : withdrawOthers(id, range, listed);
      if (added.length > 0) requireQuota();
      parties.forgetIfUnused(id);
      return { added, withdrawn };
    },
  };
}
