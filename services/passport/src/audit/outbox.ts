/**
 * Revocations whose entries the audit log does not have yet. They are stored with the revocations themselves.
 *
 * Contract: a revocation and its entry become durable together, and the revocation never waits for kms. The sender appends
 * the entries in order, each once, also after a restart. An entry that kms refuses for good is dropped and reported.
 * Bound: `ENTRIES_MAX` entries. Overflow: the oldest is dropped, and the next one states how many are missing.
 * Cancellation: by the signal of `run`.
 */
import { isRonError, Notify, sched, type ErrorCode } from '@ron/kernel';
import type { RevokeEntry } from '@ron/proto';
import type { AppendEntry } from './entries.ts';

export interface Outbox {
  /** Oldest first. */
  readonly entries: readonly RevokeEntry[];
  /** Dropped entries that no delivered entry has stated. */
  readonly missed: number;
}

export const EMPTY_OUTBOX: Outbox = { entries: [], missed: 0 };
export const ENTRIES_MAX = 1000;
const RETRY_MS = 1000;
/** Sending the same entry again would be refused again. */
const PERMANENT: readonly ErrorCode[] = ['validation', 'conflict', 'payload_too_large'];

export function withEntry({ entries, missed }: Outbox, entry: RevokeEntry): Outbox {
  const isFull = entries.length >= ENTRIES_MAX;
  return { entries: [...entries.slice(isFull ? 1 : 0), entry], missed: missed + Number(isFull) };
}

function without({ entries, missed }: Outbox, sent: RevokeEntry): Outbox {
  return {
    entries: entries.filter(({ op_id }) => op_id !== sent.op_id),
    missed: Math.max(0, missed - (sent.missed ?? 0)),
  };
}

/** Stores the outbox durably. */
export interface OutboxStore {
  readonly outbox: Outbox;
  updateOutbox(change: (outbox: Outbox) => Outbox, signal: AbortSignal): Promise<void>;
}

export interface OutboxSenderInit {
  readonly store: OutboxStore;
  readonly append: AppendEntry;
  /** Called once per outage, and for each entry that kms refuses for good. */
  readonly onProblem: (error: unknown) => void;
}

export class OutboxSender {
  readonly #init: OutboxSenderInit;
  readonly #changed = new Notify('outbox');
  #problem: string | undefined;

  constructor(init: OutboxSenderInit) {
    this.#init = init;
  }

  /** Entries that the log does not have yet. */
  get size(): number {
    return this.#init.store.outbox.entries.length;
  }

  /** Why entries are waiting. */
  get problem(): string | undefined {
    return this.size === 0 || this.#problem === undefined
      ? undefined
      : `${this.size} revocations are not in the audit log yet: ${this.#problem}`;
  }

  /** An entry was added. */
  notify(): void {
    this.#changed.notifyOne();
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      const isFine = await this.#sendAll(stopping);
      const pause_ms = RETRY_MS * (0.5 + sched.random());
      await this.#changed.notified(stopping, isFine ? {} : { within_ms: pause_ms });
    }
  }

  /** False if an entry could not be sent now. */
  async #sendAll(stopping: AbortSignal): Promise<boolean> {
    const { store, onProblem } = this.#init;
    try {
      for (let first = store.outbox.entries[0]; first !== undefined; first = store.outbox.entries[0]) {
        await this.#send(first, stopping);
        this.#problem = undefined;
      }
      return true;
    } catch (error) {
      stopping.throwIfAborted();
      if (this.#problem === undefined) onProblem(error);
      this.#problem = error instanceof Error ? error.message : 'unknown';
      return false;
    }
  }

  async #send(first: RevokeEntry, stopping: AbortSignal): Promise<void> {
    const { store, append, onProblem } = this.#init;
    const { missed } = store.outbox;
    const entry = missed > 0 && first.missed === undefined ? { ...first, missed } : first;
    // The count is stored before it is sent, so that a repeated entry is the same entry.
    if (entry !== first) await store.updateOutbox((outbox) => replaced(outbox, entry), stopping);
    await append(entry, stopping).catch((error: unknown) => {
      if (!isRonError(error) || !PERMANENT.includes(error.code)) throw error;
      onProblem(error);
    });
    await store.updateOutbox((outbox) => without(outbox, entry), stopping);
  }
}

function replaced({ entries, missed }: Outbox, entry: RevokeEntry): Outbox {
  return { entries: entries.map((each) => (each.op_id === entry.op_id ? entry : each)), missed };
}
