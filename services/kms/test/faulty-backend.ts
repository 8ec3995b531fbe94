/** A backend with injected faults: slow, hanging or unavailable. It counts calls; keys are in memory. */
import { MemoryBackend, type Alg, type Backend, type BackendState, type KeyHandle, type Signature } from '@ron/custody';
import { orAborted, RonError, sleep } from '@ron/kernel';

export class FaultyBackend implements Backend {
  readonly name = 'memory';
  readonly attestation_class = 'test:faulty';
  readonly #inner = new MemoryBackend();
  readonly algs = this.#inner.algs;
  /** Delay of each call. */
  delay_ms = 0;
  /** Calls wait until it resolves. */
  gate: Promise<void> | undefined;
  isUnavailable = false;
  /** Calls that hang until their signal aborts. */
  isHanging = false;
  calls = 0;
  signatures = 0;
  probes = 0;

  attestationClassOf(): string {
    return this.attestation_class;
  }

  state(): BackendState {
    return this.isUnavailable ? { ok: false, reason: 'the token was pulled out' } : this.#inner.state();
  }

  async create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle> {
    await this.#applyFault(signal);
    return await this.#inner.create(alg, label, signal);
  }

  open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle> {
    return this.#inner.open(key, alg, signal);
  }

  destroy(key: string, signal: AbortSignal): Promise<void> {
    return this.#inner.destroy(key, signal);
  }

  async sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]> {
    await this.#applyFault(signal);
    this.signatures += 1;
    return await this.#inner.sign(key, message, signal);
  }

  async signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    await this.#applyFault(signal);
    this.signatures += messages.length;
    return await Promise.all(messages.map((message) => this.#inner.sign(key, message, signal)));
  }

  async wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    await this.#applyFault(signal);
    return await this.#inner.wrap(key, plaintext, aad, signal);
  }

  async unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    await this.#applyFault(signal);
    return await this.#inner.unwrap(key, wrapped, aad, signal);
  }

  async derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
    await this.#applyFault(signal);
    return await this.#inner.derive(key, label, bytes, signal);
  }

  async probe(): Promise<void> {
    this.probes += 1;
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #applyFault(signal: AbortSignal): Promise<void> {
    this.calls += 1;
    if (this.isHanging) await orAborted(new Promise<never>(() => undefined), signal);
    await this.gate;
    if (this.delay_ms > 0) await sleep(this.delay_ms, signal);
    if (this.isUnavailable) throw new RonError('not_ready', 'the token was pulled out', { retry_after_ms: 1000 });
  }
}
