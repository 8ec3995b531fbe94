/**
 * Subjects and peers by number, and the quotas of entries of the DHT.
 *
 * Contract: an entry beyond a quota is refused with `storage_full`, reason `quota`. Provider records, name records, known peers
 * and own objects are counted separately, so that no kind displaces another. Triggers keep the counters.
 * Bound: `providers_max` provider records, of which one subject has `providers_per_subject`; `names_seen` name records, of which
 * one subject has the same share; `PEERS_MAX` known peers.
 */
import type { DatabaseSync } from 'node:sqlite';
import { RonError } from '@ron/kernel/core';
import type { Quotas } from './calls.ts';

/** `PeerRows` keeps 4096; rows that it has dropped stay until they expire. */
const PEERS_MAX = 8192;

/** The kinds of entries of the DHT, as their counters are called. */
export type EntryKind = 'providers' | 'records' | 'peers';

export interface Parties {
  /** The number of a subject or peer; creates it. */
  idOf(name: string): number;
  /** Why the subject may not have another entry; undefined if it may. */
  refusal(kind: EntryKind, subject: number): RonError | undefined;
  forgetIfUnused(id: number): void;
}

type Totals = Readonly<Record<EntryKind, number>>;
type Counts = Omit<Totals, 'peers'>;

export function openParties(db: DatabaseSync, quotas: () => Quotas): Parties {
  const find = db.prepare('SELECT id FROM party WHERE name = ?');
  const add = db.prepare('INSERT INTO party (name) VALUES (?) RETURNING id');
  const totals = db.prepare('SELECT providers, records, peers FROM state WHERE id = 1');
  const counts = db.prepare('SELECT providers, records FROM party WHERE id = ?');
  const forget = db.prepare('DELETE FROM party WHERE id = ? AND providers = 0 AND records = 0 AND uses = 0');

  const refusal = (kind: EntryKind, subject: number): RonError | undefined => {
    const total = (totals.get() as unknown as Totals)[kind];
    if (kind === 'peers') return total < PEERS_MAX ? undefined : quotaError(`the index knows ${total} peers`);
    const own = (counts.get(subject) as unknown as Counts)[kind];
    const { providers_max, providers_per_subject, names_seen } = quotas();
    const isProvider = kind === 'providers';
    const what = isProvider ? 'provider records' : 'name records';
    const name = isProvider ? 'providers_max' : 'names_seen';
    const total_max = isProvider ? providers_max : names_seen;
    const share_max = isProvider
      ? providers_per_subject
      : Math.max(1, Math.floor(names_seen * Math.min(1, providers_per_subject / providers_max)));
    if (own >= share_max)
      return quotaError(`the peer has ${own} ${what}; quotas.providers_per_subject permits ${share_max}`);
    if (total < total_max) return undefined;
    return quotaError(`the index has ${total} ${what} of peers; quotas.${name} is ${total_max}`);
  };

  return {
    idOf: (name) => ((find.get(name) ?? add.get(name)) as { id: number }).id,
    refusal,
    forgetIfUnused: (id) => void forget.run(id),
  };
}

export const quotaError = (message: string): RonError => new RonError('storage_full', message, { reason: 'quota' });
