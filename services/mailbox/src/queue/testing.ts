/** A mailbox of arrays that searches everything, to compare `MailboxState` with. */
import type { TopicLedger } from '@ron/proto';

export type ReferenceState = 'ready' | 'delayed' | 'leased' | 'dead';

export interface ReferenceMessage {
  readonly topic: string;
  readonly seq: number;
  readonly key: string | undefined;
  readonly bytes: number;
  segment: number;
  state: ReferenceState;
  settling: boolean;
  due_ms: number;
  delivery: number;
  nonce: number;
  attempts: number;
}

export class ReferenceMailbox {
  /** By sequence number. */
  messages: ReferenceMessage[] = [];
  readonly totals = new Map<string, { sent: number; acked: number; gone: number }>();
  last_seq = 0;

  totalsOf(topic: string): { sent: number; acked: number; gone: number } {
    let totals = this.totals.get(topic);
    if (totals === undefined) this.totals.set(topic, (totals = { sent: 0, acked: 0, gone: 0 }));
    return totals;
  }

  add(message: ReferenceMessage): void {
    this.messages.push(message);
    this.messages.sort((a, b) => a.seq - b.seq);
    this.last_seq = Math.max(this.last_seq, message.seq);
    this.totalsOf(message.topic).sent += 1;
  }

  remove(message: ReferenceMessage): void {
    this.messages = this.messages.filter((each) => each !== message);
  }

  waiting(topic: string): ReferenceMessage[] {
    return this.messages.filter((each) => each.topic === topic && each.state !== 'dead');
  }

  dead(topic: string): ReferenceMessage[] {
    return this.messages.filter((each) => each.topic === topic && each.state === 'dead');
  }

  visible(topic: string): ReferenceMessage[] {
    const keys = new Set<string>();
    return this.waiting(topic).filter((each) => {
      const isBehind = each.key !== undefined && keys.has(each.key);
      if (each.key !== undefined) keys.add(each.key);
      return each.state === 'ready' && !each.settling && !isBehind;
    });
  }

  /** Delayed and leased ones, the next due first. */
  timed(): ReferenceMessage[] {
    return this.messages
      .filter((each) => (each.state === 'delayed' || each.state === 'leased') && !each.settling)
      .toSorted((a, b) => a.due_ms - b.due_ms || a.seq - b.seq);
  }

  ledger(topic: string): TopicLedger {
    const count = (state: ReferenceState): number =>
      this.messages.filter((each) => each.topic === topic && each.state === state).length;
    const states = { ready: count('ready'), delayed: count('delayed'), leased: count('leased'), dead: count('dead') };
    return { ...this.totalsOf(topic), ...states };
  }

  check(topic: string, seq: number, delivery: number, nonce: number): number | 'stale' | 'unknown' {
    if (seq < 1 || seq > this.last_seq || delivery < 1) return 'unknown';
    const message = this.messages.find((each) => each.seq === seq);
    if (message === undefined) return 'stale';
    if (message.topic !== topic) return 'unknown';
    const isLatest = message.state !== 'dead' && message.delivery === delivery && message.nonce === nonce;
    return isLatest ? seq : 'stale';
  }
}
