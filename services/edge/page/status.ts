/** The line below the map: how many bytes are verified, or why they are not. A failure stays visible. */
import type { Address } from '@ron/proto';

export class Status {
  readonly #element: HTMLElement;

  constructor(element: HTMLElement) {
    this.#element = element;
  }

  verified(verified_bytes: number, address: Address): void {
    this.#element.dataset['verifiedBytes'] = String(verified_bytes);
    this.#show('verified', `${verified_bytes.toLocaleString('en')} bytes verified against ${address}`);
  }

  unverified(reason: string): void {
    this.#show('unverified', `Not verified in this page. ${reason}`);
  }

  mismatch(address: Address, error: Error): void {
    this.#fail(
      'mismatch',
      `Verification failed: the server sent bytes that are not those of ${address}. They are not drawn. (${error.message})`,
    );
  }

  fail(error: unknown): void {
    this.#fail(
      'error',
      `The map cannot be drawn completely: ${error instanceof Error ? error.message : String(error)}`,
    );
  }

  #show(state: string, text: string): void {
    if (this.#hasFailed) return;
    this.#element.dataset['state'] = state;
    this.#element.textContent = text;
  }

  /** A mismatch is more important than the errors that follow from it. */
  #fail(state: 'mismatch' | 'error', text: string): void {
    if (this.#element.dataset['state'] === 'mismatch') return;
    this.#element.dataset['state'] = state;
    this.#element.setAttribute('role', 'alert');
    this.#element.textContent = text;
  }

  get #hasFailed(): boolean {
    const { state } = this.#element.dataset;
    return state === 'mismatch' || state === 'error';
  }
}
