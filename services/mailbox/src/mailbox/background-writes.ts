/**
 * Work that no caller waits for: the end of a lease whose receiver left, a damaged message, the event of a dead letter.
 *
 * Contract: a failure is ignored. A message whose dead letter was not written stays leased, and the end of that lease repeats
 * the decision. `drained` resolves once all work has ended; it is called before the log is closed.
 * Bound: the messages of the deliveries in progress, and the reads of `SettledEvents`.
 */
export class BackgroundWrites {
  readonly #pending = new Set<Promise<void>>();

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
