/** A state of messages in plain maps, for tests of the store: the simplest correct `RecordTarget` and `LiveMessages`. */
import { recordBytes, type Position } from '@ron/log';
import type { DeadReason, TopicPolicy } from '@ron/proto';
import type { LiveMessages, Liveness } from '../compaction/live-messages.ts';
import type { MailboxLog } from '../mailbox-log.ts';
import {
  isApplicable,
  type HeldCounts,
  type LeaseEntry,
  type MessageEntry,
  type MessagePlace,
  type RecordTarget,
  type ReturnEntry,
  type SeenEntry,
  type SettledEntry,
  type TopicTotals,
} from '../records.ts';

export interface NaiveMessage {
  readonly seq: number;
  readonly topic: string;
  readonly id: string;
  place: MessagePlace;
  delivery: number;
  attempts: number;
  nonce: number;
  until_ms: number;
  visibility_ms: number;
  not_before_ms: number;
  error: string | undefined;
  dead: { reason: DeadReason; dead_ms: number; at: Position } | undefined;
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

export class NaiveState implements RecordTarget, LiveMessages {
  readonly messages = new Map<number, NaiveMessage>();
  readonly policies = new Map<string, Partial<TopicPolicy>>();
  readonly totals = new Map<string, TopicTotals>();
  /** Keys that are remembered: hash in hex, of topic and key. */
  readonly seen = new Map<string, SeenEntry>();
  readonly settling = new Set<number>();
  #onSettled: (() => void)[] = [];
  /** Set for tests of compaction. */
  log: MailboxLog | undefined;
  groups = 0;

  onTopic(topic: string, policy: Partial<TopicPolicy>): void {
    this.policies.set(topic, policy);
  }

  onMessage({ seq, id, place, meta, moved, isDamaged }: MessageEntry): void {
    const known = this.messages.get(seq);
    if (known !== undefined) {
      if (isDamaged) return;
      known.place = place;
      if (moved?.dead !== undefined) known.dead = { ...moved.dead, at: place };
      return;
    }
    const { topic, idempotency_key } = meta;
    if (idempotency_key !== undefined) {
      this.seen.set(this.#keyHash(topic, idempotency_key), {
        topic,
        hash: Buffer.from(this.#keyHash(topic, idempotency_key), 'hex'),
        id: Uint8Array.from(id),
        seq,
        b3: Uint8Array.from(meta.b3.subarray(0, 12)),
        until_ms: meta.sent_ms + 300_000,
      });
    }
    const { delivery, attempts, nonce, until_ms, visibility_ms, error } = moved ?? {
      delivery: 0,
      attempts: 0,
      nonce: 0,
      until_ms: 0,
      visibility_ms: 0,
      error: undefined,
    };
    const not_before_ms = moved?.not_before_ms ?? meta.not_before_ms;
    const dead = moved?.dead && { ...moved.dead, at: place };
    const lease = { delivery, attempts, nonce, until_ms, visibility_ms };
    this.messages.set(seq, { seq, topic, id: hex(id), place, ...lease, not_before_ms, error, dead });
  }

  holds(seq: number): boolean {
    return this.messages.has(seq);
  }

  onLeased(entries: readonly LeaseEntry[]): void {
    for (const { seq, ...lease } of entries) Object.assign(this.messages.get(seq) ?? {}, lease, { not_before_ms: 0 });
  }

  onReturned(entries: readonly ReturnEntry[]): void {
    for (const { seq, delivery, not_before_ms, error } of entries) {
      const known = this.messages.get(seq);
      if (known?.delivery === delivery) Object.assign(known, { until_ms: 0, not_before_ms, error });
    }
  }

  onSettled(entries: readonly SettledEntry[], at: Position): void {
    for (const entry of entries) {
      const known = this.messages.get(entry.seq);
      this.settling.delete(entry.seq);
      if (known === undefined || !isApplicable(entry.outcome, known.dead !== undefined)) continue;
      if (entry.outcome !== 'dead') this.messages.delete(entry.seq);
      else {
        const { reason, dead_ms } = entry;
        known.dead = { reason, dead_ms, at: { segment: at.segment, offset: at.offset } };
        known.attempts = entry.attempts;
        known.error = entry.error;
      }
    }
    for (const resolve of this.#onSettled.splice(0)) resolve();
  }

  onSeen(entries: readonly SeenEntry[]): void {
    for (const { hash, id, b3, ...rest } of entries) {
      const [own_hash, own_id, own_b3] = [hash, id, b3].map((bytes) => Uint8Array.from(bytes));
      this.seen.set(hex(hash), { ...rest, hash: own_hash!, id: own_id!, b3: own_b3! });
    }
  }

  onTotals(topic: string, totals: TopicTotals): void {
    this.totals.set(topic, totals);
  }

  onEnd(): void {
    this.groups += 1;
  }

  counts(): Iterable<HeldCounts> {
    const counts = new Map<string, { topic: string; waiting: number; dead: number }>();
    for (const { topic, dead } of this.messages.values()) {
      const count = counts.get(topic) ?? { topic, waiting: 0, dead: 0 };
      counts.set(topic, count);
      count[dead === undefined ? 'waiting' : 'dead'] += 1;
    }
    return counts.values();
  }

  // --- LiveMessages
  find(seq: number): Liveness {
    const known = this.messages.get(seq);
    if (known === undefined) return { kind: 'gone' };
    if (!this.settling.has(seq)) return { kind: 'held', ...known };
    return { kind: 'settling', ended: () => new Promise((resolve) => this.#onSettled.push(resolve)) };
  }

  liveBytesOf(segment: number): number {
    return this.#bytes((place) => place.segment === segment);
  }

  get live_bytes(): number {
    return this.#bytes(() => true);
  }

  seenOf(topic: string, idempotency_key: string, seq: number): SeenEntry | undefined {
    const entry = this.seen.get(this.#keyHash(topic, idempotency_key));
    return entry?.seq === seq ? entry : undefined;
  }

  isSeen({ hash, seq }: SeenEntry): boolean {
    return this.seen.get(hex(hash))?.seq === seq;
  }

  get seen_keys(): number {
    return this.seen.size;
  }

  async damaged(seq: number, signal: AbortSignal): Promise<void> {
    const known = this.messages.get(seq);
    if (known === undefined || known.dead !== undefined) return;
    const dead = { outcome: 'dead', reason: 'damaged', attempts: 0, dead_ms: 1, error: undefined } as const;
    await this.log!.appendSettled([{ ...dead, seq, topic: known.topic }], signal);
  }

  #bytes(isCounted: (place: MessagePlace) => boolean): number {
    let bytes = 0;
    for (const { place } of this.messages.values()) {
      if (isCounted(place)) bytes += recordBytes(place.payload_bytes, place.meta_bytes);
    }
    return bytes;
  }

  /** Not a real hash: readable, and different for different keys of up to 16 bytes. */
  #keyHash(topic: string, key: string): string {
    const bytes = Buffer.alloc(16);
    bytes.write(`${topic}/${key}`);
    return bytes.toString('hex');
  }
}
