/**
 * Finds the broken promises of a history.
 *
 * Contract: `violationsOf` reports only violations that no timing of the calls can explain: a call happened at one moment
 * between its begin and its answer, and a call without an answer at any later moment or never.
 * The history must be drained: at its end no message waits.
 */
import type { History, SendCall, SettleCall } from './history.ts';
import { leaseRules } from './lease-rules.ts';
import { answered, messagesOf, settledFrom, type Message, type Receipt } from './messages.ts';

export type Rule =
  | 'lost'
  | 'delivered after its ack'
  | 'overlapping leases'
  | 'delivered too early'
  | 'deliveries lost'
  | 'too many deliveries'
  | 'refused token'
  | 'key order'
  | 'order'
  | 'wrong message'
  | 'sent twice'
  | 'ledger';

export interface Violation {
  readonly rule: Rule;
  readonly detail: string;
}

/** A rule reports through this. */
export type Report = (rule: Rule, message: { readonly topic: string; readonly seq: number }, detail: string) => void;

/** Later messages of a topic that are compared with each message. */
const ORDER_WINDOW = 256;
/** Dead letters have whole ms of another clock. */
const CLOCK_SLACK_MS = 20;

export function violationsOf(history: History): Violation[] {
  const violations: Violation[] = [];
  const report: Report = (rule, { topic, seq }, detail) =>
    void violations.push({ rule, detail: `${topic} ${seq}: ${detail}` });
  const messages = messagesOf(history);
  for (const message of messages) {
    checkKept(message, report);
    checkContents(message, report);
    leaseRules(message, history, report);
  }
  checkKeyOrder(messages, report);
  checkOrder(messages, report);
  checkDuplicates(history, messages, report);
  checkLedgers(history, messages, report);
  return violations;
}

/** A message that was stored or delivered is acked at the end, or a dead letter. */
function checkKept(message: Message, report: Report): void {
  if (message.dead_ms !== undefined || message.isRemoved || message.settles.some(mayBeAck)) return;
  const known = message.sends.some((send) => answered(send) !== undefined) ? 'sent' : 'delivered';
  report('lost', message, `it was ${known}, never acked, and is gone`);
}

const mayBeAck = ({ kind, result }: SettleCall): boolean => kind === 'ack' && (result === 'ok' || result === undefined);

function checkContents({ topic, seq, sends, receipts }: Message, report: Report): void {
  const [send] = sends;
  const at = { topic, seq };
  for (const { body, stated, key, id, replay_of } of receipts) {
    if (stated !== body) report('wrong message', at, `the answer states ${stated}, its payload has ${body}`);
    if (replay_of !== undefined) continue;
    if (send === undefined) {
      report('wrong message', at, `its payload ${body} was never sent to this topic`);
      continue;
    }
    const sent = answered(send);
    if (send.topic !== topic) report('wrong message', at, `it was sent to ${send.topic}`);
    if (send.body !== body) report('wrong message', at, `sent ${send.body}, received ${body}`);
    if (send.key !== key) report('wrong message', at, `sent with key ${send.key}, received with ${key}`);
    if (sent !== undefined && sent.id !== id) report('wrong message', at, `sent as ${sent.id}, received as ${id}`);
  }
}

/** A message is delivered only once the message of its key before it was acked or is dead. */
function checkKeyOrder(messages: readonly Message[], report: Report): void {
  const last = new Map<string, Message>();
  for (const message of messages) {
    const key = message.sends[0]?.key;
    if (key === undefined) continue;
    const name = `${message.topic} ${key}`;
    const before = last.get(name);
    last.set(name, message);
    if (before === undefined) continue;
    const free_ms = settledFrom(before) - CLOCK_SLACK_MS;
    for (const { delivery, call } of message.receipts) {
      if (call.ended_ms < free_ms)
        report('key order', message, `delivery ${delivery} while ${before.seq} of the same key was not settled`);
    }
  }
}

/** Messages without a key and a delay: the first delivery of each is before those of later ones. */
function checkOrder(messages: readonly Message[], report: Report): void {
  const plain = messages.filter(({ sends }) => sends[0]?.key === undefined && sends[0]?.delay_ms === undefined);
  const topics = Map.groupBy(plain, ({ topic }) => topic);
  const firstOf = ({ receipts }: Message): Receipt | undefined =>
    receipts[0]?.delivery === 1 ? receipts[0] : undefined;
  for (const queue of topics.values()) {
    for (const [at, message] of queue.entries()) {
      const first = firstOf(message);
      const sent_ms = Math.min(...message.sends.map(({ ended_ms }) => ended_ms));
      if (first === undefined || sent_ms === Infinity) continue;
      const overtook = queue.slice(at + 1, at + 1 + ORDER_WINDOW).find((later) => {
        const other = firstOf(later)?.call;
        return other !== undefined && other.ended_ms < first.call.began_ms && sent_ms < other.began_ms;
      });
      if (overtook !== undefined) report('order', message, `${overtook.seq} was delivered before it`);
    }
  }
}

/** Within the window an idempotency key has one message, and all its answers name it. */
function checkDuplicates({ calls }: History, messages: readonly Message[], report: Report): void {
  const sends = calls.filter((call): call is SendCall => call.kind === 'send' && call.idempotency_key !== undefined);
  const seqs = new Map<string, Set<number>>();
  for (const { topic, seq, sends: own } of messages) {
    const key = own[0]?.idempotency_key;
    if (key === undefined) continue;
    const name = `${topic} ${key}`;
    seqs.set(name, (seqs.get(name) ?? new Set()).add(seq));
  }
  for (const [name, group] of Map.groupBy(sends, ({ topic, idempotency_key }) => `${topic} ${idempotency_key}`)) {
    const at = { topic: name, seq: [...(seqs.get(name) ?? [])][0] ?? 0 };
    if ((seqs.get(name)?.size ?? 0) > 1) report('sent twice', at, `messages ${[...seqs.get(name)!].join(', ')}`);
    const first = group.filter((send) => answered(send)?.duplicate === false);
    if (first.length > 1) report('sent twice', at, `${first.length} answers state duplicate: false`);
    const ids = new Set(group.map((send) => answered(send)?.id).filter((id) => id !== undefined));
    for (const { result, body } of group) {
      if (typeof result !== 'object' || !('conflict' in result)) continue;
      if (group.every((other) => other.body === body))
        report('sent twice', at, 'a conflict although the body is the same');
      if (result.conflict !== undefined) ids.add(result.conflict);
    }
    if (ids.size > 1) report('sent twice', at, `answers name the ids ${[...ids].join(', ')}`);
    const isAlone = group.length === 1 && answered(group[0]!)?.duplicate === true;
    if (isAlone) report('sent twice', at, 'a duplicate of nothing');
  }
}

/** The ledger balances, and its totals are those that the clients saw. */
function checkLedgers({ calls, topics }: History, messages: readonly Message[], report: Report): void {
  for (const { topic, ledger, dead, removed = [] } of topics) {
    const at = { topic, seq: 0 };
    const { sent, acked, ready, delayed, leased, gone } = ledger;
    const told = JSON.stringify(ledger);
    if (sent !== acked + ready + delayed + leased + ledger.dead + gone)
      report('ledger', at, `does not balance: ${told}`);
    if (ready + delayed + leased > 0) report('ledger', at, `messages wait after the drain: ${told}`);
    if (ledger.dead !== dead.length) report('ledger', at, `${dead.length} dead letters are listed: ${told}`);
    if (gone < removed.length) report('ledger', at, `${removed.length} dead letters were removed: ${told}`);
    const own = messages.filter((message) => message.topic === topic);
    const least = own.filter(({ settles }) => settles.some((each) => mayBeAck(each) && each.result === 'ok')).length;
    const most = own.filter(({ settles }) => settles.some(mayBeAck)).length;
    if (acked < least || acked > most) report('ledger', at, `${least} to ${most} acks: ${told}`);
    const unanswered = calls.filter(
      (call) => call.kind === 'send' && call.topic === topic && call.result === undefined,
    );
    if (sent < own.length || sent > own.length + unanswered.length)
      report('ledger', at, `${own.length} messages are known, ${unanswered.length} sends unanswered: ${told}`);
  }
}
