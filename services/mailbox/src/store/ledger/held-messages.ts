/**
 * The numbers of the messages that a log holds, for a proof: one byte for each number.
 *
 * Bound: pages of `PAGE` numbers; a page without messages is dropped.
 */
import { isApplicable, type HeldCounts, type MessageEntry, type RecordTarget, type SettledEntry } from '../records.ts';

const PAGE = 4096;
const [GONE, WAITING, DEAD] = [0, 1, 2];

interface Page {
  readonly states: Uint8Array;
  held: number;
}

export class HeldMessages implements RecordTarget {
  readonly #pages = new Map<number, Page>();
  readonly #counts = new Map<string, { topic: string; waiting: number; dead: number }>();

  onMessage({ seq, meta, moved, isDamaged }: MessageEntry): void {
    const isDead = moved?.dead !== undefined;
    if (!this.holds(seq)) this.#set(seq, meta.topic, isDead ? DEAD : WAITING);
    else if (isDead && !isDamaged) this.#set(seq, meta.topic, DEAD);
  }

  onSettled(entries: readonly SettledEntry[]): void {
    for (const { seq, topic, outcome } of entries) {
      if (this.holds(seq) && isApplicable(outcome, this.#stateOf(seq) === DEAD))
        this.#set(seq, topic, outcome === 'dead' ? DEAD : GONE);
    }
  }

  holds(seq: number): boolean {
    return this.#stateOf(seq) !== GONE;
  }

  counts(): Iterable<HeldCounts> {
    return this.#counts.values();
  }

  onTopic(): void {}
  onLeased(): void {}
  onReturned(): void {}
  onSeen(): void {}
  onTotals(): void {}

  #stateOf(seq: number): number {
    return this.#pages.get(Math.floor(seq / PAGE))?.states[seq % PAGE] ?? GONE;
  }

  #set(seq: number, topic: string, state: number): void {
    const number = Math.floor(seq / PAGE);
    const page = this.#pages.get(number) ?? { states: new Uint8Array(PAGE), held: 0 };
    const before = page.states[seq % PAGE]!;
    page.states[seq % PAGE] = state;
    page.held += Number(state !== GONE) - Number(before !== GONE);
    if (page.held === 0) this.#pages.delete(number);
    else this.#pages.set(number, page);
    const count = this.#counts.get(topic) ?? { topic, waiting: 0, dead: 0 };
    this.#counts.set(topic, count);
    count.waiting += Number(state === WAITING) - Number(before === WAITING);
    count.dead += Number(state === DEAD) - Number(before === DEAD);
  }
}
