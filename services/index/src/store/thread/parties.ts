/**
 * Subjects and peers by number, and the quotas of entries of the DHT.
 *
 * Contract: an entry beyond a quota is refused with `storage_full`, reason `quota`. Own objects do not count, so that no peer can displace them. Triggers keep the counters.
 */
import type { DatabaseSync } from 'node:sqlite';
import { RonError } from '@ron/kernel/core';
import type { Quotas } from './calls.ts';

export interface Parties {
  /** The number of a subject or peer; creates it. */
  idOf(name: string): number;
  /** Why the subject may not have another entry; undefined if it may. */
  refusal(subject: number): RonError | undefined;
  forgetIfUnused(id: number): void;
}

interface Counts {
  readonly total: number;
  readonly own: number;
}

export function openParties(db: DatabaseSync, quotas: () => Quotas): Parties {
  const find = db.prepare('SELECT id FROM party WHERE name = ?');
  const add = db.prepare('INSERT INTO party (name) VALUES (?) RETURNING id');
  const counts = db.prepare(
    'SELECT (SELECT entries FROM state WHERE id = 1) AS total, (SELECT entries FROM party WHERE id = ?) AS own',
  );
  const forget = db.prepare('DELETE FROM party WHERE id = ? AND entries = 0 AND uses = 0');
  return {
    idOf: (name) => ((find.get(name) ?? add.get(name)) as { id: number }).id,
    refusal: (subject) => {
      const { total, own } = counts.get(subject) as unknown as Counts;
      const { providers_max, providers_per_subject } = quotas();
      if (own >= providers_per_subject) {
        return quotaError(`the peer has ${own} entries; quotas.providers_per_subject is ${providers_per_subject}`);
      }
      if (total < providers_max) return undefined;
      return quotaError(`the index has ${total} entries of peers; quotas.providers_max is ${providers_max}`);
    },
    forgetIfUnused: (id) => void forget.run(id),
  };
}

export const quotaError = (message: string): RonError => new RonError('storage_full', message, { reason: 'quota' });
