/**
 * Subjects and peers by number, and the quotas of entries of the DHT.
 *
 * Contract: a write that adds entries beyond a quota is refused with `storage_full`, reason `quota`; one that adds none never
 * is, even if a quota was lowered. Own objects do not count, so that no peer can displace them. Triggers keep the counters.
 */
import type { DatabaseSync } from 'node:sqlite';
import { RonError } from '@ron/kernel/core';
import type { Quotas } from './calls.ts';

export interface Parties {
  /** The number of a subject or peer; creates it. */
  idOf(name: string): number;
  /** Call before the write; the returned function throws if the rows added since exceed a quota. */
  refusal(subject: number): () => void;
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
      const before = counts.get(subject) as unknown as Counts;
      return () => {
        const { total, own } = counts.get(subject) as unknown as Counts;
        const { providers_max, providers_per_subject } = quotas();
        if (own > before.own && own > providers_per_subject) {
          throw quotaError(
            `the peer would have ${own} entries; quotas.providers_per_subject is ${providers_per_subject}`,
          );
        }
        if (total > before.total && total > providers_max) {
          throw quotaError(`the index would have ${total} entries of peers; quotas.providers_max is ${providers_max}`);
        }
      };
    },
    forgetIfUnused: (id) => void forget.run(id),
  };
}

export const quotaError = (message: string): RonError => new RonError('storage_full', message, { reason: 'quota' });
