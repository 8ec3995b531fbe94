/**
 * Reads an object from the own node or, if that lacks it, from other nodes that its index knows.
 *
 * Contract: every byte is verified against the address, wherever it comes from. Other nodes are read without a capability,
 * over plain HTTP. A provider that lies, stalls or breaks off is left for the next one, and the read continues at the first
 * missing byte. An object that neither the node nor a provider has is `not_found`, as without providers.
 * Bound: `PROVIDERS_MAX` providers, each tried once. Cancellation: by the signals of the calls.
 */
import { StorageClient, type ReadInit } from '@ron/client';
import { reach } from '@ron/client/node';
import { isRonError } from '@ron/kernel/core';
import type { Address, ProviderDto } from '@ron/proto';
import { messageOf } from '../exits.ts';

const PROVIDERS_MAX = 32;
/** Another provider may be faster. */
const STALL_MS = 5000;
const DEADLINE_MS = 5000;
const ONCE = { tries_max: 1, backoff_ms: () => 0 } as const;

export interface ObjectReaderInit {
  readonly own: StorageClient;
  /** The providers of an object, the best first. */
  readonly providers: (address: Address, signal: AbortSignal | undefined) => Promise<readonly ProviderDto[]>;
  /** Called when a provider could not be used. */
  readonly onFailure: (url: string, why: string) => void;
}

type Kept = Parameters<StorageClient['provenPrefix']>[1];

export class ObjectReader {
  readonly #init: ObjectReaderInit;
  /** The remaining providers; undefined until the own node lacked the object. */
  #left: ProviderDto[] | undefined;
  #current: StorageClient;
  /** The nodes that delivered bytes, besides the own one. */
  readonly from: string[] = [];

  constructor(init: ObjectReaderInit) {
    this.#init = init;
    this.#current = init.own;
  }

  async *get(address: Address, init: ReadInit): AsyncGenerator<Uint8Array, void, void> {
    const { offset, length = Infinity } = init.range ?? { offset: 0 };
    let at = offset;
    for (;;) {
      const range = { offset: at, ...(length !== Infinity && { length: offset + length - at }) };
      try {
        for await (const bytes of this.#current.get(address, { ...init, range })) {
          this.#delivered();
          at += bytes.length;
          yield bytes;
        }
        return;
      } catch (error) {
        if (at > offset && at === offset + length) return;
        await this.#next(address, error, init.signal);
      }
    }
  }

  /** As of StorageClient. */
  async provenPrefix(address: Address, kept: Kept, init: { signal?: AbortSignal | undefined }): Promise<number> {
    for (;;) {
      try {
        return await this.#current.provenPrefix(address, kept, init);
      } catch (error) {
        await this.#next(address, error, init.signal);
      }
    }
  }

  #delivered(): void {
    const { url } = this.#current;
    if (this.#current !== this.#init.own && this.from.at(-1) !== url) this.from.push(url);
  }

  /** Continues with the next provider, or throws the error. */
  async #next(address: Address, error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted === true) throw error;
    const { own, providers, onFailure } = this.#init;
    if (this.#left === undefined) {
      if (this.#current === own && !isRonError(error, 'not_found')) throw error;
      const found = await providers(address, signal).catch(() => []);
      this.#left = found.filter(({ url }) => /^https?:\/\//.test(url)).slice(0, PROVIDERS_MAX);
    } else onFailure(this.#current.url, messageOf(error));
    const next = this.#left.shift();
    if (next === undefined) throw error;
    this.#current = new StorageClient({
      ...reach(next.url),
      stall_ms: STALL_MS,
      deadline_ms: DEADLINE_MS,
      policy: ONCE,
      resume_policy: ONCE,
    });
  }
}
