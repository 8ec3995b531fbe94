/**
 * Reads an object from the own node or, if that lacks it, from other nodes that its index knows.
 *
 * Contract: every byte is verified against the address, wherever it comes from. Other nodes are read without a capability,
 * over plain HTTP. A provider that lies, stalls or breaks off is left for the next one, and the read continues at the first
 * missing byte. While others remain, one that sends less than `STALL_BYTES` in `stall_ms` is left too. If no provider
 * delivered a byte, the error is `not_found` and states why they failed.
 * Bound: `PROVIDERS_MAX` providers, each tried once. Cancellation: by the signals of the calls.
 */
import { StorageClient, type ReadInit } from '@ron/client';
import { reach } from '@ron/client/node';
import { isRonError, POLICIES, RonError } from '@ron/kernel/core';
import type { Address, ProviderDto } from '@ron/proto';
import { messageOf } from '../exits.ts';

const PROVIDERS_MAX = 32;
/** Another provider may be faster. */
const STALL_MS = 5000;
const STALL_BYTES = 64 * 1024;
/** The failures that an error states. */
const STATED_MAX = 3;
const DEADLINE_MS = 5000;

export interface ObjectReaderInit {
  readonly own: StorageClient;
  /** The providers of an object, the best first. */
  readonly providers: (address: Address, signal: AbortSignal | undefined) => Promise<readonly ProviderDto[]>;
  /** Called when a provider could not be used. */
  readonly onFailure: (url: string, why: string) => void;
  /** Default 5000. */
  readonly stall_ms?: number;
}

type Kept = Parameters<StorageClient['provenPrefix']>[1];

export class ObjectReader {
  readonly #init: ObjectReaderInit;
  /** The remaining providers; undefined until the own node lacked the object. */
  #left: ProviderDto[] | undefined;
  #current: StorageClient;
  /** The nodes that delivered bytes, besides the own one. */
  readonly from: string[] = [];
  readonly #failures: string[] = [];

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
    const { providers, onFailure } = this.#init;
    if (this.#left === undefined) {
      if (!isRonError(error, 'not_found')) throw error;
      const found = await providers(address, signal).catch(() => []);
      this.#left = found.filter(({ url }) => /^https?:\/\//.test(url)).slice(0, PROVIDERS_MAX);
    } else {
      const why = messageOf(error);
      onFailure(this.#current.url, why);
      this.#failures.push(`${this.#current.url}: ${why}`);
    }
    const next = this.#left.shift();
    if (next === undefined) throw this.#exhausted(address, error);
    this.#current = new StorageClient({
      ...reach(next.url),
      stall_ms: this.#init.stall_ms ?? STALL_MS,
      stall_bytes: this.#left.length > 0 ? STALL_BYTES : 1,
      deadline_ms: DEADLINE_MS,
      policy: POLICIES.once,
      resume_policy: POLICIES.once,
    });
  }

  #exhausted(address: Address, cause: unknown): unknown {
    if (this.from.length > 0 || this.#failures.length === 0) return cause;
    const stated = this.#failures.slice(0, STATED_MAX).join('; ');
    const more = this.#failures.length - STATED_MAX;
    const message = `${address} is not stored, and its providers failed: ${stated}${more > 0 ? `; and ${more} more` : ''}`;
    return new RonError('not_found', message, { cause });
  }
}
