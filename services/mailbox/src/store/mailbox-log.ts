/**
 * The log of a mailbox: all messages and everything that happened to them.
 */
import type { FileSystem } from '@ron/log';
import type { TopicPolicy } from '@ron/proto';
import type {
  LeaseEntry,
  MessageMeta,
  MessagePlace,
  RecordTarget,
  ReturnEntry,
  SettledEntry,
  TopicTotals,
} from './records.ts';

export interface MessageInput {
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
}

/** A message that was read and verified. Owns its bytes. */
export interface StoredMessage {
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
}

export interface ReplayProgress {
  readonly bytes: number;
  readonly bytes_total: number;
}

/** Events of the store; the service turns them into domain events and metrics. */
export type StoreEvent =
  | { readonly kind: 'damage'; readonly problem: string }
  | { readonly kind: 'message damaged'; readonly topic: string; readonly id: Uint8Array; readonly seq: number }
  | { readonly kind: 'ledger accepted'; readonly problem: string };

export interface MailboxLogInit {
  /** The data directory. */
  dir: string;
  /** Default: the real one. */
  fs?: FileSystem;
  segment_bytes: number;
  target: RecordTarget;
  /** Called while `open` replays the log. */
  onProgress?: (progress: ReplayProgress) => void;
  onEvent?: (event: StoreEvent) => void;
  signal: AbortSignal;
}

export class MailboxLog implements AsyncDisposable {
  /**
   * Locks the directory, replays the log into `target` and checks the ledger. Rejects with `not_ready` if another process has
   * the lock. A ledger problem does not reject: see `problem`.
   */
  static open(_init: MailboxLogInit): Promise<MailboxLog> {
    throw new Error('not written yet');
  }

  /** Why the ledger does not hold; undefined if it holds. While it is set, nothing may be appended. */
  get problem(): string | undefined {
    throw new Error('not written yet');
  }

  /** Whether the free space is down to the reserve, so that sends are refused. */
  get isFull(): boolean {
    throw new Error('not written yet');
  }

  /** The totals of a topic by the durable records. */
  totalsOf(_topic: string): TopicTotals | undefined {
    throw new Error('not written yet');
  }

  /**
   * Appends messages atomically, and creates their topics. Durable when it resolves with the sequence numbers; the target
   * has got `onMessage` (with the same `meta` object) before. Rejects with `storage_full` when the reserve is reached.
   */
  appendMessages(_messages: readonly MessageInput[], _signal: AbortSignal): Promise<readonly number[]> {
    throw new Error('not written yet');
  }

  /** Appends messages and the removal of the dead letters that they replay as one atomic group. Otherwise as `appendMessages`. */
  appendReplayed(
    _messages: readonly MessageInput[],
    _removed: readonly SettledEntry[],
    _signal: AbortSignal,
  ): Promise<readonly number[]> {
    throw new Error('not written yet');
  }

  /** Resolves when the leases are written; they are durable later. The target gets no call. */
  appendLeased(_entries: readonly LeaseEntry[], _signal: AbortSignal): Promise<void> {
    throw new Error('not written yet');
  }

  /** As `appendLeased`. */
  appendReturned(_entries: readonly ReturnEntry[], _signal: AbortSignal): Promise<void> {
    throw new Error('not written yet');
  }

  /** Durable when it resolves; the target has got `onSettled` before. */
  appendSettled(_entries: readonly SettledEntry[], _signal: AbortSignal): Promise<void> {
    throw new Error('not written yet');
  }

  /** Creates a topic or replaces the fields that are set for it. Durable when it resolves; the target has got `onTopic` before. */
  appendTopic(_topic: string, _policy: Partial<TopicPolicy>, _signal: AbortSignal): Promise<void> {
    throw new Error('not written yet');
  }

  /** A message from the page cache, verified; undefined if that would wait for the disk, or it is damaged. */
  readNow(_place: MessagePlace): StoredMessage | undefined {
    throw new Error('not written yet');
  }

  /** A message, verified; undefined if it is damaged. */
  read(_place: MessagePlace, _signal: AbortSignal): Promise<StoredMessage | undefined> {
    throw new Error('not written yet');
  }

  /** Commits the waiting appends, closes the files and unlocks the directory. */
  async close(): Promise<void> {}

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
