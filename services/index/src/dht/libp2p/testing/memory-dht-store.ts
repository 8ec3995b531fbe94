/** The key-value part of `IndexStore` in memory, with its expiry and quotas. */
import { RonError } from '@ron/kernel';
import type { DhtRecordsInit } from '../serve/dht-records.ts';

type DhtStore = DhtRecordsInit['store'];

interface Row {
  readonly value: Uint8Array;
  readonly subject: string;
  readonly expires_ms: number;
}

export class MemoryDhtStore implements DhtStore {
  readonly rows = new Map<string, Row>();
  readonly #per_subject_max: number;

  constructor(per_subject_max = 1000) {
    this.#per_subject_max = per_subject_max;
  }

  async dhtGet(key: string, now_ms: number): Promise<Uint8Array | undefined> {
    const row = this.rows.get(key);
    return row !== undefined && row.expires_ms > now_ms ? row.value : undefined;
  }

  async dhtPut(key: string, value: Uint8Array, { subject, expires_ms }: Omit<Row, 'value'>): Promise<void> {
    const count = [...this.rows.values()].filter((row) => row.subject === subject).length;
    if (!this.rows.has(key) && count >= this.#per_subject_max)
      throw new RonError('storage_full', 'the quota of the subject is used up', { reason: 'quota' });
    this.rows.set(key, { value: Uint8Array.from(value), subject, expires_ms });
  }

  async dhtDelete(key: string): Promise<void> {
    this.rows.delete(key);
  }

  async dhtQuery(prefix: string, { now_ms, limit }: { now_ms: number; limit: number }) {
    const rows = [...this.rows].filter(([key, row]) => key.startsWith(prefix) && row.expires_ms > now_ms);
    return rows.slice(0, limit).map(([key, { value }]) => ({ key, value }));
  }
}
