/** A checker that cannot fail proves nothing: each broken promise is planted once, and each explanation accepted once. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { violationsOf, type Rule } from './checker.ts';
import type { Delivered, FinalTopic, History, HistoryCall, ReceiveCall, SendCall, SettleCall } from './history.ts';

const topic = 'jobs';
const VISIBILITY_MS = 1000;

const sent = (seq: number, at: number, more: Partial<SendCall> = {}): SendCall => ({
  kind: 'send',
  topic,
  began_ms: at,
  ended_ms: at + 10,
  body: `b${seq}`,
  result: { seq, id: `id${seq}`, duplicate: false },
  ...more,
});

const message = (seq: number, delivery = 1, more: Partial<Delivered> = {}): Delivered => ({
  seq,
  id: `id${seq}`,
  delivery,
  attempts: delivery,
  body: `b${seq}`,
  stated: `b${seq}`,
  ...more,
});

const received = (at: number, result: Delivered[] | undefined, more: Partial<ReceiveCall> = {}): ReceiveCall => ({
  kind: 'receive',
  topic,
  began_ms: at,
  ended_ms: result === undefined ? Infinity : at + 10,
  visibility_ms: VISIBILITY_MS,
  result,
  ...more,
});

const settle = (
  kind: SettleCall['kind'],
  at: number,
  seq: number,
  delivery = 1,
  more: Partial<SettleCall> = {},
): SettleCall => ({ kind, topic, began_ms: at, ended_ms: at + 10, seq, delivery, result: 'ok', ...more });

const NO_ANSWER = { ended_ms: Infinity, result: undefined } as const;

interface Planted {
  readonly calls: readonly HistoryCall[];
  readonly acked?: number;
  readonly dead?: FinalTopic['dead'];
  readonly sent?: number;
  readonly ledger?: Partial<FinalTopic['ledger']>;
  readonly leases_survive?: boolean;
}

function rulesBrokenBy({ calls, acked = 1, dead = [], leases_survive = true, ...more }: Planted): Rule[] {
  const total = more.sent ?? acked + dead.length;
  const ledger = { sent: total, acked, ready: 0, delayed: 0, leased: 0, dead: dead.length, gone: 0, ...more.ledger };
  const history: History = { calls, topics: [{ topic, ledger, dead }], max_deliveries: 3, leases_survive };
  return [...new Set(violationsOf(history).map(({ rule }) => rule))];
}

const GOOD = [sent(1, 0), received(100, [message(1)]), settle('ack', 200, 1)];
const deadLetter = (seq: number, dead_ms: number) => ({ seq, dead_ms, attempts: 1 });

const PLANTED: readonly (readonly [what: string, rules: readonly Rule[], planted: Planted])[] = [
  ['a sent message that is never delivered', ['lost'], { calls: [sent(1, 0)], acked: 0, sent: 1, ledger: { gone: 1 } }],
  [
    'a delivered message that is never acked and not delivered again',
    ['lost'],
    { calls: [sent(1, 0), received(100, [message(1)])], acked: 0, sent: 1, ledger: { gone: 1 } },
  ],
  [
    'a delivered message whose send was not answered',
    ['lost'],
    { calls: [sent(1, 0, NO_ANSWER), received(100, [message(1)])], acked: 0, sent: 1, ledger: { gone: 1 } },
  ],
  [
    'a dead letter that is not listed',
    ['lost'],
    {
      calls: [sent(1, 0), received(100, [message(1)]), settle('nack', 200, 1, 1, { dead: true })],
      acked: 0,
      sent: 1,
      ledger: { gone: 1 },
    },
  ],
  ['a delivery after the ack', ['delivered after its ack'], { calls: [...GOOD, received(1500, [message(1, 2)])] }],
  [
    'an accepted ack of a delivery that is not the latest',
    ['delivered after its ack'],
    { calls: [sent(1, 0), received(100, [message(1)]), received(1500, [message(1, 2)]), settle('ack', 1600, 1, 1)] },
  ],
  [
    'a delivery after the ack when leases may be lost',
    ['delivered after its ack'],
    { calls: [...GOOD, received(1500, [message(1, 1)])], leases_survive: false },
  ],
  [
    'two receivers of one message',
    ['overlapping leases'],
    { calls: [sent(1, 0), received(100, [message(1)]), received(900, [message(1, 2)]), settle('ack', 950, 1, 2)] },
  ],
  [
    'a delivery within the extended lease',
    ['overlapping leases'],
    {
      calls: [
        sent(1, 0),
        received(100, [message(1)]),
        settle('extend', 900, 1, 1, { visibility_ms: 1000 }),
        received(1500, [message(1, 2)]),
        settle('ack', 1600, 1, 2),
      ],
    },
  ],
  [
    'a delivery within the delay of a nack',
    ['overlapping leases'],
    {
      calls: [
        sent(1, 0),
        received(100, [message(1)]),
        settle('nack', 200, 1, 1, { delay_ms: 500 }),
        received(400, [message(1, 2)]),
        settle('ack', 500, 1, 2),
      ],
    },
  ],
  [
    'a delivery within the delay of the send',
    ['delivered too early'],
    { calls: [sent(1, 0, { delay_ms: 500 }), received(100, [message(1)]), settle('ack', 200, 1)] },
  ],
  [
    'a delivery number that is given twice',
    ['deliveries lost'],
    { calls: [sent(1, 0), received(100, [message(1)]), received(1500, [message(1)]), settle('ack', 1600, 1)] },
  ],
  [
    'attempts that a restart forgot',
    ['deliveries lost'],
    {
      calls: [
        sent(1, 0),
        received(100, [message(1)]),
        received(1500, [message(1, 2, { attempts: 1 })]),
        settle('ack', 1600, 1, 2),
      ],
    },
  ],
  [
    'a delivery number that goes back',
    ['overlapping leases', 'deliveries lost'],
    {
      calls: [sent(1, 0), received(100, [message(1, 2)]), received(1500, [message(1, 1)]), settle('ack', 1600, 1, 2)],
    },
  ],
  [
    'more deliveries than the policy has',
    ['too many deliveries'],
    { calls: [sent(1, 0), received(100, [message(1, 4)]), settle('ack', 200, 1, 4)] },
  ],
  [
    'a stale ack of the latest delivery',
    ['refused token'],
    { calls: [...GOOD.slice(0, 2), settle('ack', 150, 1, 1, { result: 'stale' }), settle('ack', 200, 1)] },
  ],
  [
    'a stale ack while a receive without an answer could not have had the message',
    ['refused token'],
    {
      calls: [
        ...GOOD.slice(0, 2),
        received(120, undefined, { broke_ms: 300 }),
        settle('ack', 400, 1, 1, { result: 'stale' }),
        settle('ack', 500, 1),
      ],
    },
  ],
  [
    'an unknown token',
    ['refused token'],
    { calls: [...GOOD.slice(0, 2), settle('extend', 150, 1, 1, { result: 'unknown' }), settle('ack', 200, 1)] },
  ],
  [
    'the second message of a key before the ack of the first',
    ['key order'],
    {
      calls: [
        sent(1, 0, { key: 'k' }),
        sent(2, 20, { key: 'k' }),
        received(100, [message(1, 1, { key: 'k' })]),
        received(150, [message(2, 1, { key: 'k' })]),
        settle('ack', 200, 1),
        settle('ack', 210, 2),
      ],
      acked: 2,
    },
  ],
  [
    'a message that overtakes',
    ['order'],
    {
      calls: [
        sent(1, 0),
        sent(2, 0),
        received(100, [message(2)]),
        received(150, [message(1)]),
        settle('ack', 200, 1),
        settle('ack', 200, 2),
      ],
      acked: 2,
    },
  ],
  [
    'bytes that were never sent',
    ['wrong message'],
    { calls: [sent(1, 0), received(100, [message(1, 1, { body: 'x', stated: 'x' })]), settle('ack', 200, 1)] },
  ],
  [
    'a message that no client sent',
    ['wrong message', 'ledger'],
    { calls: [...GOOD, received(100, [message(2, 1, { body: 'x', stated: 'x' })]), settle('ack', 200, 2)] },
  ],
  [
    'a wrong hash in the answer',
    ['wrong message'],
    { calls: [sent(1, 0), received(100, [message(1, 1, { stated: 'x' })]), settle('ack', 200, 1)] },
  ],
  [
    'another key',
    ['wrong message'],
    { calls: [sent(1, 0), received(100, [message(1, 1, { key: 'k' })]), settle('ack', 200, 1)] },
  ],
  [
    'another id',
    ['wrong message'],
    { calls: [sent(1, 0), received(100, [message(1, 1, { id: 'x' })]), settle('ack', 200, 1)] },
  ],
  [
    'two messages of one idempotency key',
    ['sent twice'],
    {
      calls: [
        sent(1, 0, { idempotency_key: 'i', ...NO_ANSWER }),
        sent(2, 20, { idempotency_key: 'i', body: 'b1' }),
        received(100, [message(1), message(2, 1, { body: 'b1', stated: 'b1' })]),
        settle('ack', 200, 1),
        settle('ack', 200, 2),
      ],
      acked: 2,
    },
  ],
  [
    'a repeated send with duplicate: false',
    ['sent twice'],
    { calls: [sent(1, 0, { idempotency_key: 'i' }), sent(1, 20, { idempotency_key: 'i' }), ...GOOD.slice(1)] },
  ],
  [
    'a duplicate with another id',
    ['sent twice'],
    {
      calls: [
        sent(1, 0, { idempotency_key: 'i' }),
        sent(1, 20, { idempotency_key: 'i', result: { seq: 1, id: 'other', duplicate: true } }),
        ...GOOD.slice(1),
      ],
    },
  ],
  [
    'a conflict without another body',
    ['sent twice'],
    {
      calls: [
        sent(1, 0, { idempotency_key: 'i' }),
        sent(1, 20, { idempotency_key: 'i', result: { conflict: 'id1' } }),
        ...GOOD.slice(1),
      ],
    },
  ],
  ['a ledger that does not balance', ['ledger'], { calls: GOOD, ledger: { gone: 1 } }],
  ['a ledger with one ack too few', ['ledger'], { calls: GOOD, ledger: { acked: 0, gone: 1 } }],
  ['a ledger with one ack too many', ['ledger'], { calls: GOOD, ledger: { acked: 2, sent: 2 } }],
  ['a ledger with one send too many', ['ledger'], { calls: GOOD, ledger: { sent: 2, gone: 1 } }],
  ['messages that wait after the drain', ['ledger'], { calls: GOOD, ledger: { sent: 2, ready: 1 } }],
];

suite('each broken promise is found', () => {
  for (const [what, rules, planted] of PLANTED)
    test(what, () => assert.deepEqual(rulesBrokenBy(planted).toSorted(), [...rules].toSorted()));
});

const ALLOWED: readonly (readonly [what: string, planted: Planted])[] = [
  ['a message that is sent, delivered and acked', { calls: GOOD }],
  ['a send without an answer that is not there', { calls: [...GOOD, sent(2, 0, NO_ANSWER)] }],
  [
    'a send without an answer that is there',
    { calls: [sent(1, 0, NO_ANSWER), received(100, [message(1)]), settle('ack', 200, 1)] },
  ],
  ['an ack without an answer', { calls: [...GOOD.slice(0, 2), settle('ack', 200, 1, 1, NO_ANSWER)] }],
  [
    'an ack without an answer that did not happen',
    {
      calls: [
        ...GOOD.slice(0, 2),
        settle('ack', 200, 1, 1, NO_ANSWER),
        received(1200, [message(1, 2)]),
        settle('ack', 1300, 1, 2),
      ],
    },
  ],
  [
    'a delivery after the lease, and a stale ack of the first',
    {
      calls: [
        ...GOOD.slice(0, 2),
        received(1110, [message(1, 2)]),
        settle('ack', 1200, 1, 1, { result: 'stale' }),
        settle('ack', 1200, 1, 2),
      ],
    },
  ],
  [
    'a delivery after a shortened lease',
    {
      calls: [
        ...GOOD.slice(0, 2),
        settle('extend', 200, 1, 1, { visibility_ms: 100 }),
        received(400, [message(1, 2)]),
        settle('ack', 500, 1, 2),
      ],
    },
  ],
  [
    'a dead letter releases its key',
    {
      calls: [
        sent(1, 0, { key: 'k' }),
        sent(2, 20, { key: 'k' }),
        received(100, [message(1, 1, { key: 'k' })]),
        settle('nack', 120, 1, 1, { dead: true }),
        received(150, [message(2, 1, { key: 'k' })]),
        settle('ack', 210, 2),
      ],
      dead: [deadLetter(1, 125)],
    },
  ],
  [
    'concurrent receives whose answers cross',
    {
      calls: [
        sent(1, 0),
        sent(2, 0),
        received(100, [message(2)]),
        received(105, [message(1)]),
        settle('ack', 200, 1),
        settle('ack', 200, 2),
      ],
      acked: 2,
    },
  ],
  [
    'a repeated send after no answer',
    {
      calls: [
        sent(1, 0, { idempotency_key: 'i', ...NO_ANSWER }),
        sent(1, 20, { idempotency_key: 'i', result: { seq: 1, id: 'id1', duplicate: true } }),
        ...GOOD.slice(1),
      ],
    },
  ],
  [
    'a delivery number twice when leases may be lost',
    { calls: [...GOOD.slice(0, 2), received(300, [message(1)]), settle('ack', 400, 1)], leases_survive: false },
  ],
];

suite('no explanation is mistaken for a broken promise', () => {
  for (const [what, planted] of ALLOWED) test(what, () => assert.deepEqual(rulesBrokenBy(planted), []));
});
