/** The real store, except that changes of selected tables fail or wait. */
import type { Draft, Edit, RangeInit, RangeRecord } from '@ron/custody/store';
import { NEVER } from '@ron/kernel';
import { diskError } from '@ron/log';
import { openVaultStore, type VaultStore } from '../src/vault/vault.ts';

export class FaultyStore implements VaultStore {
  readonly #store: VaultStore;
  #fault: { readonly table: string; readonly code: string } | undefined;
  #held: (() => void)[] | undefined;

  private constructor(store: VaultStore) {
    this.#store = store;
  }

  static async open(dir: string): Promise<FaultyStore> {
    return new FaultyStore(await openVaultStore(`${dir}/vault`, { kek: new Uint8Array(32) }, NEVER));
  }

  /** Changes of the table are refused, as by the disk. */
  fail(table: string, code: string): void {
    this.#fault = { table, code };
  }

  /** Changes wait until the fault is removed. */
  hold(): void {
    this.#held ??= [];
  }

  mend(): void {
    this.#fault = undefined;
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const go of held) go();
  }

  async commit<A>(edit: Edit<A>, signal: AbortSignal, bytes?: number): Promise<A> {
    const held = this.#held;
    if (held !== undefined) await new Promise<void>((resolve) => held.push(resolve));
    const checked = (draft: Draft): A => edit(this.#checked(draft));
    return await this.#store.commit(checked, signal, bytes);
  }

  #checked(draft: Draft): Draft {
    const check = (table: string): void => {
      const fault = this.#fault;
      if (fault?.table === table) throw diskError(Object.assign(new Error(fault.code), { code: fault.code }));
    };
    return {
      get: (table, key) => draft.get(table, key),
      has: (table, key) => draft.has(table, key),
      count: (table) => draft.count(table),
      decoded: (table, key) => draft.decoded(table, key),
      put: (table, key, value, decoded) => (check(table), draft.put(table, key, value, decoded)),
      remove: (table, key) => (check(table), draft.remove(table, key)),
      onCommitted: (publish) => draft.onCommitted(publish),
    };
  }

  get = (table: string, key: string): Uint8Array | undefined => this.#store.get(table, key);
  has = (table: string, key: string): boolean => this.#store.has(table, key);
  count = (table: string): number => this.#store.count(table);
  range = (table: string, init: RangeInit): RangeRecord[] => this.#store.range(table, init);
  prefetch = (table: string, keys: readonly string[], signal: AbortSignal): Promise<void> =>
    this.#store.prefetch(table, keys, signal);
  seal = (context: string, plaintext: Uint8Array): Uint8Array => this.#store.seal(context, plaintext);
  unseal = (context: string, sealed: Uint8Array): Uint8Array => this.#store.unseal(context, sealed);
  kekFor = (purpose: string): Uint8Array => this.#store.kekFor(purpose);
  get failed(): VaultStore['failed'] {
    return this.#store.failed;
  }
  get problem(): string | undefined {
    return this.#store.problem;
  }
  close = (): Promise<void> => this.#store.close();
  [Symbol.asyncDispose] = (): Promise<void> => this.close();
}
