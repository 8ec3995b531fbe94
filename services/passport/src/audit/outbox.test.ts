import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { RonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import type { RevokeEntry } from '@ron/proto';
import { EMPTY_OUTBOX, ENTRIES_MAX, OutboxSender, withEntry, type Outbox, type OutboxStore } from './outbox.ts';

const by = { capability_id: 'b'.repeat(22), subject: 'root', chain: [] };
const entry = (at: number): RevokeEntry => ({ op: 'revoke', op_id: `r${at}`, time_ms: at, by, epoch: at });

class Store implements OutboxStore {
  outbox: Outbox = EMPTY_OUTBOX;
  writes = 0;
  async updateOutbox(change: (outbox: Outbox) => Outbox): Promise<void> {
    await Promise.resolve();
    this.writes += 1;
    this.outbox = change(this.outbox);
  }
  add(at: number): void {
    this.outbox = withEntry(this.outbox, entry(at));
  }
}

interface Sent {
  readonly store: Store;
  readonly sender: OutboxSender;
  readonly appended: RevokeEntry[];
  readonly problems: unknown[];
  fail: Error | undefined;
}

function sending(t: TestContext, store = new Store()): Sent {
  const appended: RevokeEntry[] = [];
  const problems: unknown[] = [];
  const sent: Sent = {
    store,
    appended,
    problems,
    fail: undefined,
    sender: new OutboxSender({
      store,
      append: async (each) => {
        await Promise.resolve();
        if (sent.fail !== undefined) throw sent.fail;
        appended.push(each as RevokeEntry);
      },
      onProblem: (error) => problems.push(error),
    }),
  };
  const stop = new AbortController();
  const running = sent.sender.run(stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    await running;
  });
  return sent;
}

test('entries are sent in order and removed once they are durable; an outage delays them and is reported once', async (t) => {
  const sent = sending(t);
  const { store, sender, appended, problems } = sent;
  sent.fail = new RonError('unreachable', 'kms is down');
  for (const at of [1, 2, 3]) store.add(at);
  sender.notify();
  await eventually('it is reported', () => sender.problem !== undefined);
  assert.match(sender.problem!, /3 revocations are not in the audit log yet: kms is down/);
  sent.fail = undefined;
  await eventually('all are sent', () => sender.size === 0);
  assert.deepEqual(
    appended.map(({ op_id }) => op_id),
    ['r1', 'r2', 'r3'],
  );
  assert.equal(problems.length, 1);
  assert.equal(sender.problem, undefined);
});

test('an entry that kms refuses for good is reported and does not hold up the others', async (t) => {
  const store = new Store();
  store.add(1);
  const sent = sending(t, store);
  sent.fail = new RonError('validation', 'malformed');
  await eventually('it is dropped', () => sent.sender.size === 0);
  assert.match(String(sent.problems[0]), /malformed/);
  sent.fail = undefined;
  store.add(2);
  sent.sender.notify();
  await eventually('the next is sent', () => sent.appended.length === 1);
});

test('the outbox is bounded, and the next delivered entry states the number of dropped ones once', async (t) => {
  const store = new Store();
  for (let at = 1; at <= ENTRIES_MAX + 2; at++) store.add(at);
  assert.equal(store.outbox.entries.length, ENTRIES_MAX);
  const { sender, appended } = sending(t, store);
  await eventually('all are sent', () => sender.size === 0);
  assert.equal(appended.length, ENTRIES_MAX);
  assert.deepEqual([appended[0]!.op_id, appended[0]!.missed, appended[1]!.missed], ['r3', 2, undefined]);
  assert.equal(store.outbox.missed, 0);
});

test('an entry that is sent again is the same entry, even if more were dropped meanwhile', async (t) => {
  const store = new Store();
  store.outbox = { entries: [entry(1), entry(2)], missed: 3 };
  const tried: RevokeEntry[] = [];
  const append = async (each: unknown): Promise<void> => {
    tried.push(each as RevokeEntry);
    if (tried.length > 1) return;
    store.outbox = { ...store.outbox, missed: store.outbox.missed + 1 };
    throw new RonError('not_ready', 'kms is down');
  };
  const sender = new OutboxSender({ store, append, onProblem: () => undefined });
  const stop = new AbortController();
  const running = sender.run(stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    await running;
  });
  await eventually('all were sent', () => sender.size === 0);
  assert.deepEqual(tried[1], tried[0]);
  assert.deepEqual(
    tried.map(({ missed }) => missed),
    [3, 3, 1],
  );
});
