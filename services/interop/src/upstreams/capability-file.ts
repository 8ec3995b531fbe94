/**
 * The capability in a file that `ron up` renews.
 *
 * Contract: `token` reads the file at most once in `FRESH_MS`, or after `forget`, because reading checks its owner and mode with
 * several system calls. A file that cannot be read rejects with `not_ready`; an older token is not used then.
 * Bound: one token; concurrent reads share one. Cancellation: by the caller's deadline; the read goes on for other callers.
 */
import { assert, sched } from '@ron/kernel';
import { readSecretFile } from '@ron/log';

const FRESH_MS = 5000;

export class CapabilityFile {
  readonly #path: string;
  #token: string | undefined;
  #read_ms = 0;
  #reading: Promise<string> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** The token of the last `token`. */
  get current(): string {
    assert(this.#token !== undefined, 'the capability was read before');
    return this.#token;
  }

  async token(): Promise<string> {
    if (this.#token !== undefined && sched.now_ms() - this.#read_ms < FRESH_MS) return this.#token;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return await this.#reading;
  }

  /** Reads the file again at the next use: the service refused the token. */
  forget(): void {
    this.#read_ms = -Infinity;
  }

  async #read(): Promise<string> {
    this.#token = await readSecretFile(this.#path);
    this.#read_ms = sched.now_ms();
    return this.#token;
  }
}
