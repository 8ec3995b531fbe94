/**
 * Decides whether a client still sends its body, for one connection. `SendWatch` does the same for answers.
 *
 * Contract: a transfer that moves no byte for `stall_ms` is `stalled`; one whose average since it began, less a grace of
 * `stall_ms`, is below `rate_bytes_per_s_min` is `too_slow`. Anything else is `ok`, however large it is.
 * Bound: five numbers.
 */
export interface TransferLimits {
  readonly stall_ms: number;
  readonly rate_bytes_per_s_min: number;
}

export type TransferState = 'ok' | 'stalled' | 'too_slow';

export class TransferWatch {
  #running = false;
  #start_ms = 0;
  #start_bytes = 0;
  #moved_ms = 0;
  #moved_bytes = 0;

  /** Nothing is owed by the peer now: the next `check` begins a new transfer. */
  rest(): void {
    this.#running = false;
  }

  /** `moved_bytes` only grows while the transfer runs; where it starts does not matter. */
  check(now_ms: number, moved_bytes: number, limits: TransferLimits): TransferState {
    if (!this.#running) {
      this.#running = true;
      this.#start_ms = this.#moved_ms = now_ms;
      this.#start_bytes = this.#moved_bytes = moved_bytes;
      return 'ok';
    }
    if (moved_bytes !== this.#moved_bytes) {
      this.#moved_bytes = moved_bytes;
      this.#moved_ms = now_ms;
    } else if (now_ms - this.#moved_ms >= limits.stall_ms) return 'stalled';
    const judged_ms = now_ms - this.#start_ms - limits.stall_ms;
    const owed_bytes = (judged_ms / 1000) * limits.rate_bytes_per_s_min;
    return moved_bytes - this.#start_bytes < owed_bytes ? 'too_slow' : 'ok';
  }
}
