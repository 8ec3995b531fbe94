/**
 * Verified reads of messages by their number.
 *
 * Contract: a read returns the message as it was sent, `damaged` if its record is not intact, `unreadable` if the disk cannot
 * read it now (a bad sector, a missing file), or `gone` if the message is not held any more. A message that compaction moves during the read is read at its new place.
 * Bound: `TRIES` places. Cancellation: between two tries.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, RonError } from '@ron/kernel';
import { isUnreadable } from '@ron/log';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE } from '../../queue/states.ts';
import type { DiskCondition } from '../../store/disk-condition.ts';
import type { MailboxLog } from '../../store/mailbox-log.ts';
import type { DeadReader, MessageReader, StoredMessage } from '../../store/read-message.ts';
import type { MessagePlace } from '../../store/records.ts';

const TRIES = 8;

export type ReadMessage = StoredMessage | 'damaged' | 'unreadable' | 'gone';

export class MessageReads {
  readonly #state: MailboxState;
  readonly #reader: MessageReader;
  readonly #disk: DiskCondition;

  constructor(state: MailboxState, { reader, disk }: Pick<MailboxLog, 'reader' | 'disk'>) {
    this.#state = state;
    this.#reader = reader;
    this.#disk = disk;
  }

  /** From the page cache, without a promise; otherwise from the disk. */
  read(seq: number, signal: AbortSignal): ReadMessage | Promise<ReadMessage> {
    const slot = this.#state.find(seq);
    if (slot === NONE) return 'gone';
    const { place, dead } = this.#state.view(slot);
    const read = this.#reader.readNow(place) ?? this.#fromDisk(seq, signal);
    return dead?.reason === 'damaged' ? whole(read) : read;
  }

  /** Id and meta only; undefined if they cannot be read. */
  readMeta(seq: number, signal: AbortSignal): Promise<Omit<StoredMessage, 'payload'> | undefined> {
    return unlessUnreadable(this.#atPlace(seq, signal, (slot) => this.#reader.readMeta(this.#state.view(slot).place)));
  }

  /** Reads the last errors of dead letters, if any. One call at a time. */
  errorReader(): (seq: number, signal: AbortSignal) => Promise<string | undefined> {
    const readDead = this.#reader.deadReader();
    return (seq, signal) => this.#readError(readDead, seq, signal);
  }

  async #readError(readDead: DeadReader, seq: number, signal: AbortSignal): Promise<string | undefined> {
    const read = this.#atPlace(seq, signal, async (slot) => {
      const { dead } = this.#state.view(slot);
      return dead && (await readDead(dead.at, seq));
    });
    return (await unlessUnreadable(read))?.error;
  }

  async #fromDisk(seq: number, signal: AbortSignal): Promise<ReadMessage> {
    return (await this.#atPlace(seq, signal, (slot) => this.#readAt(this.#state.view(slot).place))) ?? 'gone';
  }

  async #readAt(place: MessagePlace): Promise<ReadMessage> {
    try {
      return (await this.#reader.read(place)) ?? 'damaged';
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      this.#disk.readFailed(place, error instanceof Error ? error.message : String(error));
      return 'unreadable';
    }
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

/** Compaction keeps a damaged dead letter without its payload. Its record may also have been unreadable for a while. */
async function whole(read: ReadMessage | Promise<ReadMessage>): Promise<ReadMessage> {
  const message = await read;
  if (typeof message === 'string') return message;
  return blake3(message.payload).equals(message.meta.b3) ? message : 'damaged';
}

async function unlessUnreadable<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return undefined;
  }
}
