import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recordBytes } from '@ron/log';
import fc from 'fast-check';
import { MailboxState } from './mailbox-state.ts';
import { NONE, type Slot, STATE } from './states.ts';
import { ReferenceMailbox, type ReferenceMessage } from './testing.ts';

const TOPICS = ['a', 'b'];
const KEYS = [undefined, undefined, 'k1', 'k2', 'k3'];
const STATE_NAMES = { ready: STATE.ready, delayed: STATE.delayed, leased: STATE.leased, dead: STATE.dead };
const META_BYTES = 10;
const place = (segment: number, payload_bytes: number) => ({
  segment,
  offset: 64,
  payload_bytes,
  meta_bytes: META_BYTES,
});

/** Applies each step to the state and to the reference. `a` and `b` choose the message and the numbers. */
class Pair {
  readonly state = new MailboxState(2);
  readonly reference = new ReferenceMailbox();
  now_ms = 1000;
  #seq = 0;
  #nonce = 0;

  constructor() {
    for (const topic of TOPICS) this.state.createTopic(topic);
    assert.ok(this.state.finishLoad(10));
  }

  step(op: number, a: number, b: number): void {
    this.now_ms += a % 7;
    const steps = [
      () => this.add(a, b),
      () => this.add(b, a),
      () => this.receive(a, b),
      () => this.receive(b, a),
      () => this.settleLatest(a),
      () => this.runDue(),
      () => this.onWaiting(a, (each) => this.release(each, b % 3 === 0 ? undefined : this.now_ms + (b % 50))),
      () => this.onWaiting(a, (each) => this.extend(each, this.now_ms + (b % 50))),
      () => this.onWaiting(a, (each) => this.beginSettle(each)),
      () => this.endSettle(a, b),
      () => this.removeDead(a),
      () => this.move(a, b),
    ];
    steps[op % steps.length]!();
  }

  slotOf({ seq }: ReferenceMessage): Slot {
    const slot = this.state.find(seq);
    assert.notEqual(slot, NONE);
    return slot;
  }

  add(a: number, b: number): void {
    const topic = TOPICS[a % TOPICS.length]!;
    const due_ms = b % 4 === 0 ? this.now_ms + (b % 40) : undefined;
    this.#seq += 1 + (a % 3);
    const key = KEYS[b % KEYS.length];
    const segment = 1 + (this.#seq >>> 4);
    const base = { topic, seq: this.#seq, key, bytes: b % 100 };
    const lease = { delivery: 0, nonce: 0, attempts: 0 };
    const state = due_ms === undefined ? ('ready' as const) : ('delayed' as const);
    this.reference.add({ ...base, ...lease, segment, state, settling: false, due_ms: due_ms ?? 0 });
    this.state.add({
      topic: this.state.topic(topic)!,
      seq: this.#seq,
      place: place(segment, b % 100),
      sent_ms: 1_700_000_000_000,
      due_ms,
      key,
      isMoved: false,
    });
  }

  receive(a: number, b: number): void {
    const topic = TOPICS[a % TOPICS.length]!;
    const slots = this.state.peek(this.state.topic(topic)!, 1 + (b % 3));
    const expected = this.reference.visible(topic).slice(0, 1 + (b % 3));
    assert.deepEqual(
      slots.map((slot) => this.state.seqOf(slot)),
      expected.map(({ seq }) => seq),
    );
    for (const each of expected) {
      const lease = { delivery: each.delivery + 1, attempts: each.attempts + 1, nonce: ++this.#nonce };
      Object.assign(each, lease, { state: 'leased', due_ms: this.now_ms + (b % 60) });
      this.state.lease(this.slotOf(each), { ...lease, due_ms: each.due_ms });
    }
  }

  settleLatest(a: number): void {
    const leased = this.reference.messages.filter(({ state, settling }) => state === 'leased' && !settling);
    const each = leased[a % leased.length];
    if (each === undefined) return;
    this.beginSettle(each);
    this.acked(each);
  }

  runDue(): void {
    for (;;) {
      const next = this.reference.timed()[0];
      assert.equal(this.state.nextDueMs(), next?.due_ms);
      const slot = this.state.due(this.now_ms);
      if (next === undefined || next.due_ms > this.now_ms) return assert.equal(slot, NONE);
      assert.equal(this.state.seqOf(slot), next.seq);
      this.release(next, next.state === 'leased' ? this.now_ms + 5 : undefined);
    }
  }

  onWaiting(a: number, apply: (message: ReferenceMessage) => void): void {
    const waiting = this.reference.messages.filter(({ state, settling }) => state !== 'dead' && !settling);
    const each = waiting[a % waiting.length];
    if (each !== undefined) apply(each);
  }

  release(each: ReferenceMessage, due_ms: number | undefined): void {
    Object.assign(each, due_ms === undefined ? { state: 'ready' } : { state: 'delayed', due_ms });
    this.state.release(this.slotOf(each), due_ms);
  }

  extend(each: ReferenceMessage, due_ms: number): void {
    Object.assign(each, { state: 'leased', due_ms });
    this.state.extend(this.slotOf(each), due_ms);
  }

  beginSettle(each: ReferenceMessage): void {
    each.settling = true;
    this.state.beginSettle(this.slotOf(each));
  }

  acked(each: ReferenceMessage): void {
    this.reference.remove(each);
    this.reference.totalsOf(each.topic).acked += 1;
    this.state.acked(this.slotOf(each));
  }

  endSettle(a: number, b: number): void {
    const settling = this.reference.messages.filter((each) => each.settling);
    const each = settling[a % settling.length];
    if (each === undefined) return;
    each.settling = false;
    if (b % 3 === 0) this.state.undoSettle(this.slotOf(each));
    else if (b % 3 === 1) this.acked(each);
    else {
      each.state = 'dead';
      this.state.dead(this.slotOf(each), {
        reason: 'nacked',
        dead_ms: 5,
        attempts: each.attempts,
        at: { segment: 1, offset: 2 },
      });
    }
  }

  removeDead(a: number): void {
    const dead = this.reference.messages.filter(({ state }) => state === 'dead');
    const each = dead[a % dead.length];
    if (each === undefined) return;
    this.reference.remove(each);
    this.reference.totalsOf(each.topic).gone += 1;
    this.state.removed(this.slotOf(each));
  }

  move(a: number, b: number): void {
    const each = this.reference.messages[a % this.reference.messages.length];
    if (each === undefined) return;
    each.segment = 1 + (b % 9);
    this.state.move(this.slotOf(each), place(each.segment, each.bytes));
  }

  compare(): void {
    const { state, reference } = this;
    const seqs = (slots: readonly Slot[]): number[] => slots.map((slot) => state.seqOf(slot));
    for (const name of TOPICS) {
      const topic = state.topic(name)!;
      const expected = reference.ledger(name);
      assert.deepEqual(topic.ledger(), expected);
      assert.equal(topic.ledgerGap(), 0);
      const waiting = reference.waiting(name);
      const visible = reference.visible(name).map(({ seq }) => seq);
      assert.deepEqual(seqs(state.peek(topic, 1e6)), visible);
      assert.equal(topic.visible, visible.length);
      assert.deepEqual(
        seqs(state.waitingAfter(topic, 0, 1e6)),
        waiting.map(({ seq }) => seq),
      );
      const middle = waiting[waiting.length >>> 1]?.seq ?? 0;
      const rest = waiting.filter(({ seq }) => seq > middle).slice(0, 3);
      assert.deepEqual(
        seqs(state.waitingAfter(topic, middle, 3)),
        rest.map(({ seq }) => seq),
      );
      assert.deepEqual(
        seqs(state.deadAfter(topic, 0, 1e6)),
        reference.dead(name).map(({ seq }) => seq),
      );
      assert.equal(
        topic.bytes,
        waiting.reduce((sum, { bytes }) => sum + bytes, 0),
      );
      assert.equal(
        topic.dead_bytes,
        reference.dead(name).reduce((sum, { bytes }) => sum + bytes, 0),
      );
    }
    this.compareMessages();
  }

  compareMessages(): void {
    const { state, reference } = this;
    const recordsOf = (messages: readonly ReferenceMessage[]): number =>
      messages.reduce((sum, { bytes }) => sum + recordBytes(bytes, META_BYTES), 0);
    assert.equal(state.live_bytes, recordsOf(reference.messages));
    for (let segment = 0; segment < 20; segment += 1)
      assert.equal(state.liveBytes(segment), recordsOf(reference.messages.filter((each) => each.segment === segment)));
    for (const each of reference.messages) {
      const view = state.view(this.slotOf(each));
      assert.equal(view.state, STATE_NAMES[each.state]);
      assert.equal(view.isSettling, each.settling);
      assert.equal(view.topic.name, each.topic);
      assert.equal(view.attempts, each.attempts);
      if (each.state === 'dead') assert.equal(view.dead?.reason, 'nacked');
      for (const nonce of [each.nonce, each.nonce + 1])
        for (const topic of TOPICS) {
          const token = { seq: each.seq, delivery: each.delivery, nonce };
          const found = state.check(state.topic(topic)!, token);
          const expected = reference.check(topic, each.seq, each.delivery, nonce);
          assert.equal(typeof found === 'number' ? state.seqOf(found) : found, expected);
        }
    }
  }
}

// [mailbox I-3] [mailbox I-5] [mailbox I-6] [mailbox I-8]
test('any sequence of transitions has the results, the order and the counts of a mailbox of arrays', () => {
  const step = fc.tuple(fc.nat(11), fc.nat(1000), fc.nat(1000));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 250, size: 'max' }), (steps) => {
      const pair = new Pair();
      for (const [op, a, b] of steps) {
        pair.step(op, a, b);
        pair.compare();
      }
    }),
    { numRuns: 40 },
  );
});
