/**
 * Verified reads of messages by their number.
 *
 * Contract: a read returns the message as it was sent, `damaged` if its record is not intact, or `gone` if the message is not
 * held any more. A message that compaction moves during the read is read at its new place.
 * Bound: `TRIES` places. Cancellation: between two tries.
 */
import { isRonError, RonError } from '@ron/kernel';
import type { MailboxState } from '../queue/mailbox-state.ts';
import { NONE } from '../queue/states.ts';
import type { MessageReader, StoredMessage } from '../store/read-message.ts';

const TRIES = 8;

export type ReadMessage = StoredMessage | 'damaged' | 'gone';

export class MessageReads {
  readonly #state: MailboxState;
  readonly #reader: MessageReader;

  constructor(state: MailboxState, reader: MessageReader) {
    this.#state = state;
    this.#reader = reader;
  }

  /** From the page cache, without a promise; otherwise from the disk. */
  read(seq: number, signal: AbortSignal): ReadMessage | Promise<ReadMessage> {
    const slot = this.#state.find(seq);
    if (slot === NONE) return 'gone';
    const { place, dead } = this.#state.view(slot);
    // Compaction keeps a damaged dead letter without its payload.
    if (dead?.reason === 'damaged') return 'damaged';
    return this.#reader.readNow(place) ?? this.#fromDisk(seq, signal);
  }

  /** Id and meta only; undefined if they cannot be read. */
  readMeta(seq: number, signal: AbortSignal): Promise<Omit<StoredMessage, 'payload'> | undefined> {
    return this.#atPlace(seq, signal, (slot) => this.#reader.readMeta(this.#state.view(slot).place));
  }

  /** The last error of a dead letter, if any. */
  async readError(seq: number, signal: AbortSignal): Promise<string | undefined> {
    const details = await this.#atPlace(seq, signal, async (slot) => {
      const { dead } = this.#state.view(slot);
      return dead && (await this.#reader.readDead(dead.at, seq));
    });
    return details?.error;
  }

  async #fromDisk(seq: number, signal: AbortSignal): Promise<ReadMessage> {
    const read = await this.#atPlace(
      seq,
      signal,
      async (slot) => (await this.#reader.read(this.#state.view(slot).place)) ?? 'damaged',
    );
    return read ?? 'gone';
  }

  async #atPlace<T>(
    seq: number,
    signal: AbortSignal,
    read: (slot: number) => Promise<T | undefined>,
  ): Promise<T | undefined> {
    for (let tries = 0; tries < TRIES; tries++) {
      signal.throwIfAborted();
      const slot = this.#state.find(seq);
      if (slot === NONE) return undefined;
      try {
        return await read(slot);
      } catch (error) {
        if (!isRonError(error, 'not_found')) throw error;
      }
    }
    throw new RonError('not_ready', `message ${seq} could not be read: its segment is missing`);
  }
}
