/**
 * Writes that no caller waits for: the end of a lease whose receiver left, a dead letter that a read found.
 *
 * Contract: a write that fails is dropped: its message stays leased, and the end of that lease repeats the decision.
 * Bound: by the deliveries under way. `drained` resolves once all have ended; it is called before the log is closed.
 */
export class BackgroundWrites {
  readonly #pending = new Set<Promise<void>>();

  get depth(): number {
    return this.#pending.size;
  }

  run(write: () => Promise<unknown>): void {
    const pending = write()
      .then(
        () => undefined,
        () => undefined,
      )
      .finally(() => this.#pending.delete(pending));
    this.#pending.add(pending);
  }

  async drained(): Promise<void> {
    // A write may begin another one.
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }
}
