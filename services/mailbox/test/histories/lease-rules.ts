/** The rules of one message's leases, deliveries and tokens. */
import type { Report } from './checker.ts';
import type { History, SettleCall } from './history.ts';
import type { Message, Receipt } from './messages.ts';

/** A timer fires up to a ms early, and a restart computes the rest of a lease from whole ms. */
const LEASE_SLACK_MS = 20;

interface Span {
  readonly began_ms: number;
  readonly ended_ms: number;
}

export function leaseRules(message: Message, history: History, report: Report): void {
  checkAcked(message, history, report);
  checkLeases(message, history, report);
  checkDeliveries(message, history, report);
  checkTokens(message, history, report);
}

/** An acked message is never delivered again. An accepted ack was for the latest delivery, so no later one exists. */
function checkAcked(message: Message, { leases_survive }: History, report: Report): void {
  for (const ack of message.settles) {
    if (ack.kind !== 'ack' || ack.result !== 'ok') continue;
    for (const { delivery, call } of message.receipts) {
      const isLater = call.began_ms > ack.ended_ms || (leases_survive && delivery > ack.delivery);
      if (isLater) report('delivered after its ack', message, `delivery ${delivery}, after the ack of ${ack.delivery}`);
    }
  }
}

/** No delivery while the lease of an earlier one lasts, nor before the delay of a nack is over. */
function checkLeases(message: Message, { leases_survive }: History, report: Report): void {
  const [send] = message.sends;
  for (const [at, later] of message.receipts.entries()) {
    const { call, delivery } = later;
    if (send?.delay_ms !== undefined && call.ended_ms < send.began_ms + send.delay_ms - LEASE_SLACK_MS)
      report('delivered too early', message, `delivery ${delivery} within its delay of ${send.delay_ms} ms`);
    if (!leases_survive) continue;
    for (const earlier of message.receipts.slice(0, at)) {
      const free_ms = freeFrom(earlier, call, message.settles);
      if (call.ended_ms < free_ms - LEASE_SLACK_MS)
        report(
          'overlapping leases',
          message,
          `delivery ${delivery} at most ${Math.round(call.ended_ms - earlier.call.began_ms)} ms after ${earlier.delivery}, which lasted until ${Math.round(free_ms - earlier.call.began_ms)} ms`,
        );
    }
  }
}

/** The earliest moment at which the lease of a delivery may have ended, seen from a later receive. */
function freeFrom(earlier: Receipt, later: Span, settles: readonly SettleCall[]): number {
  const own = settles.filter(
    ({ delivery, result, began_ms }) =>
      delivery === earlier.delivery && result !== 'stale' && result !== 'unknown' && began_ms < later.ended_ms,
  );
  let possible = [{ set_ms: earlier.call.ended_ms, end_ms: earlier.call.began_ms + earlier.call.visibility_ms }];
  for (const { kind, result, began_ms, ended_ms, visibility_ms = 0, delay_ms = 0 } of own) {
    const end_ms = kind === 'extend' ? began_ms + visibility_ms : kind === 'nack' ? began_ms + delay_ms : -Infinity;
    // A call that was answered before the later delivery began has replaced the calls that were answered before it began.
    const isSure = result === 'ok' && ended_ms < later.began_ms;
    if (isSure) possible = possible.filter(({ set_ms }) => set_ms > began_ms);
    possible.push({ set_ms: ended_ms, end_ms });
  }
  return Math.min(...possible.map(({ end_ms }) => end_ms));
}

/** Delivery numbers and attempts only grow, also over a restart. */
function checkDeliveries(message: Message, { leases_survive, max_deliveries }: History, report: Report): void {
  const { receipts } = message;
  for (const { attempts, delivery } of receipts) {
    if (attempts > max_deliveries) report('too many deliveries', message, `attempt ${attempts} of ${max_deliveries}`);
    if (attempts > delivery || attempts < 1)
      report('deliveries lost', message, `attempt ${attempts} at delivery ${delivery}`);
  }
  if (!leases_survive) return;
  for (const [at, { delivery, attempts, call }] of receipts.entries()) {
    const before = receipts[at - 1];
    if (before === undefined) continue;
    if (before.delivery === delivery) report('deliveries lost', message, `delivery ${delivery} happened twice`);
    else if (attempts <= before.attempts || before.call.began_ms > call.ended_ms)
      report(
        'deliveries lost',
        message,
        `delivery ${delivery} (attempt ${attempts}) follows ${before.delivery} (${before.attempts})`,
      );
  }
}

/** A token of the topic is never unknown, and stale only if its delivery is not the latest or the message is gone. */
function checkTokens(message: Message, { calls, leases_survive }: History, report: Report): void {
  for (const settle of message.settles) {
    if (settle.result === 'unknown')
      report('refused token', message, `the ${settle.kind} of delivery ${settle.delivery} is unknown`);
    if (settle.result !== 'stale' || !leases_survive) continue;
    if (!hasReason(settle, message) && !mayBeLeasedUnseen(settle, message, calls))
      report('refused token', message, `the ${settle.kind} of delivery ${settle.delivery}, the latest, is stale`);
  }
}

function hasReason(stale: SettleCall, { receipts, settles, dead_ms, isRemoved }: Message): boolean {
  if (isRemoved || (dead_ms ?? Infinity) < stale.ended_ms + LEASE_SLACK_MS) return true;
  if (receipts.some(({ delivery, call }) => delivery > stale.delivery && call.began_ms < stale.ended_ms)) return true;
  return settles.some(
    (other) =>
      other !== stale && other.kind !== 'extend' && other.result !== 'stale' && other.began_ms < stale.ended_ms,
  );
}

/** A receive without an answer may have leased the message, once its lease had ended. */
function mayBeLeasedUnseen(settle: SettleCall, { receipts, settles }: Message, calls: History['calls']): boolean {
  const receipt = receipts.find(({ delivery }) => delivery === settle.delivery);
  return calls.some((call) => {
    if (call.kind !== 'receive' || call.topic !== settle.topic || call.result !== undefined) return false;
    const { began_ms, broke_ms: ended_ms = Infinity } = call;
    if (began_ms > settle.ended_ms || receipt === undefined) return false;
    return freeFrom(receipt, { began_ms, ended_ms }, settles) < ended_ms + LEASE_SLACK_MS;
  });
}
