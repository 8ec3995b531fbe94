/** The calls of a history, grouped by message. */
import type { Delivered, FinalTopic, History, ReceiveCall, SendCall, SettleCall } from './history.ts';

export interface Receipt extends Delivered {
  readonly call: ReceiveCall;
}

export interface Message {
  readonly topic: string;
  readonly seq: number;
  /** Sends that were answered with its number, then those without an answer that have its body. */
  readonly sends: readonly SendCall[];
  /** By delivery number. */
  readonly receipts: readonly Receipt[];
  readonly settles: readonly SettleCall[];
  /** When it became a dead letter that is still there; undefined if it is none. */
  readonly dead_ms: number | undefined;
  /** It was a dead letter, and was replayed or deleted. */
  readonly isRemoved: boolean;
}

export const answered = ({ result }: SendCall): { seq: number; id: string; duplicate: boolean } | undefined =>
  typeof result === 'object' && 'seq' in result ? result : undefined;

class Grouped {
  readonly sends: SendCall[] = [];
  readonly receipts: Receipt[] = [];
  readonly settles: SettleCall[] = [];
  readonly topic: string;

  constructor(topic: string) {
    this.topic = topic;
  }
}

/** All messages of which a client knows, by number. */
export function messagesOf({ calls, topics }: History): Message[] {
  const groups = new Map<number, Grouped>();
  const unanswered = new Map<string, SendCall[]>();
  const groupOf = (seq: number, topic: string): Grouped => {
    const group = groups.get(seq) ?? new Grouped(topic);
    groups.set(seq, group);
    return group;
  };
  for (const call of calls) {
    if (call.kind === 'receive') {
      for (const each of call.result ?? []) groupOf(each.seq, call.topic).receipts.push({ ...each, call });
    } else if (call.kind !== 'send') groupOf(call.seq, call.topic).settles.push(call);
    else if (answered(call) !== undefined) groupOf(answered(call)!.seq, call.topic).sends.push(call);
    else if (call.result === undefined) unanswered.set(call.body, [...(unanswered.get(call.body) ?? []), call]);
  }
  const deadAt = deadTimes(topics);
  const removed = new Set(topics.flatMap((topic) => topic.removed ?? []));
  return [...groups]
    .toSorted(([one], [other]) => one - other)
    .map(([seq, group]) => ({
      topic: group.topic,
      seq,
      sends: [...group.sends, ...(unanswered.get(bodyOf(group) ?? '') ?? [])],
      receipts: group.receipts.toSorted((one, other) => one.delivery - other.delivery),
      settles: group.settles.toSorted((one, other) => one.began_ms - other.began_ms),
      dead_ms: deadAt.get(seq),
      isRemoved: removed.has(seq),
    }));
}

const bodyOf = ({ sends, receipts }: Grouped): string | undefined => sends[0]?.body ?? receipts[0]?.body;

function deadTimes(topics: readonly FinalTopic[]): Map<number, number> {
  return new Map(topics.flatMap(({ dead }) => dead.map(({ seq, dead_ms }) => [seq, dead_ms] as const)));
}

/** The first moment at which a message may have been acked or dead; Infinity if it never was. */
export function settledFrom({ settles, dead_ms, isRemoved }: Message): number {
  const ends = settles
    .filter(({ kind, dead, result }) => (kind === 'ack' || dead === true) && (result === 'ok' || result === undefined))
    .map(({ began_ms }) => began_ms);
  if (isRemoved) return -Infinity;
  return Math.min(...ends, dead_ms ?? Infinity);
}
