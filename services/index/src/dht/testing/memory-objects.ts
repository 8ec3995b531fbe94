/** Own objects, names and cursors in memory, for tests with a virtual clock: the threads of the database have real time. */
import type { Address } from '@ron/proto';
import type { StoredName } from '../../store/index-store.ts';
import { positionOfAddress } from '../keys.ts';
import type { ProvidingInit } from '../provide/providing.ts';

type Store = ProvidingInit['store'];

export class MemoryObjects implements Store {
  readonly cursors = new Map<string, Uint8Array>();
  readonly addresses = new Set<Address>();
  readonly own: StoredName[] = [];
  /** Rejects all calls with it. */
  failure: Error | undefined;

  async objects(cursor: Uint8Array | undefined, limit: number) {
    this.#require();
    const all = Array.from(this.addresses, (address) => ({ address, routing_key: positionOfAddress(address) }));
    const after = all.filter(({ routing_key }) => cursor === undefined || Buffer.compare(routing_key, cursor) > 0);
    return after.toSorted((a, b) => Buffer.compare(a.routing_key, b.routing_key)).slice(0, limit);
  }

  async object(address: Address) {
    this.#require();
    return this.addresses.has(address) ? { address, size: 1, media_type: 'text/plain', announced_ms: 0 } : undefined;
  }

  async countObjects(): Promise<number> {
    return this.addresses.size;
  }

  async names(_prefix: string, after: { label: string; key: string } | undefined, limit: number) {
    this.#require();
    const orderOf = ({ label, key }: { label: string; key: string }): string => `${label}\0${key}`;
    const sorted = this.own.toSorted((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
    return sorted.filter((name) => after === undefined || orderOf(name) > orderOf(after)).slice(0, limit);
  }

  async name(key: string, label: string) {
    return this.own.find((name) => name.key === key && name.label === label);
  }

  async readCursor(name: string) {
    this.#require();
    return this.cursors.get(name);
  }

  async saveCursor(name: string, cursor: Uint8Array | undefined): Promise<void> {
    this.#require();
    if (cursor === undefined) this.cursors.delete(name);
    else this.cursors.set(name, cursor);
  }

  #require(): void {
    if (this.failure !== undefined) throw this.failure;
  }
}
