/**
 * The compaction of a segment against an ack and a receive of its messages, on the real mailbox and compactor.
 *
 * The segment has a leased message, which is acked, and a waiting one, which is received. It is removed with both moved,
 * acked or delivered at any step of the compaction.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NEVER } from '@ron/kernel';
import type { Compactor, CompactorInit } from '../../store/compaction/compactor.ts';
import type { Mailbox } from '../mailbox.ts';
import { decodeToken } from '../receive/token.ts';
import { filesOf, type Crash, type CrashPoints } from './testing/crash-points.ts';
import type { Files, Slow } from './testing/model-disk.ts';
import { onMailbox, TOPIC, type Parts } from './testing/model-mailbox.ts';

/** The classes under test. */
export interface CompactionParts extends Parts {
  readonly Compactor: typeof Compactor;
}

interface Lease {
  readonly seq: number;
  readonly attempts: number;
  readonly token: string;
}

/** The calls and answers of the client so far. */
export interface Answers {
  readonly received: Lease[];
  readonly acking: number[];
  readonly acked: number[];
}

export interface FullSegment {
  readonly files: Files;
  readonly leased: Lease;
}

/** A segment with a leased message and one that waits; a new segment is being written. */
export async function fullSegment(): Promise<FullSegment> {
  let leased: Lease | undefined;
  const files = await filesOf(async (mailbox) => {
    await mailbox.send([{ topic: TOPIC, payload: Buffer.from('a') }], NEVER);
    const { messages } = await mailbox.receive(TOPIC, {}, NEVER);
    leased = leaseOf(messages[0]!);
    await mailbox.send([{ topic: TOPIC, payload: Buffer.from('b') }], NEVER);
    await mailbox.parts.log.rotate(NEVER);
  });
  assert.ok(leased !== undefined);
  return { files, leased };
}

const leaseOf = ({ seq, attempts, token }: Lease): Lease => ({ seq, attempts, token });

/** The calls of the client, one after another: acks of the messages that it has, the leased one first. */
export type Call = 'ack' | 'receive';

export interface CompactionInit {
  readonly segment: FullSegment;
  readonly calls: readonly Call[];
  readonly slow: readonly Slow[];
}

export const compaction = (parts: CompactionParts, init: CompactionInit, points: CrashPoints<Answers>): Build => {
  const { segment, calls, slow } = init;
  return onMailbox(parts, { files: segment.files, slow }, async (box, world) => {
    const { log, live } = box.mailbox.parts;
    const onEvent: CompactorInit['onEvent'] = ({ kind }) => assert.equal(kind, 'segment removed');
    const compactor = new parts.Compactor({ log, live, onEvent });
    const answers: Answers = { received: [segment.leased], acking: [], acked: [] };
    const note = (): void => points.note(box.disk, answers, world.now_ms());
    box.disk.onChange = note;
    const [oldest] = log.segments.files.numbers();
    const client: Record<Call, () => Promise<void>> = {
      ack: async () => {
        const { seq, token } = answers.received[answers.acking.length]!;
        answers.acking.push(seq);
        assert.deepEqual(await box.mailbox.ack(TOPIC, [token], NEVER), ['ok']);
        answers.acked.push(seq);
      },
      receive: async () => {
        const messages = await box.receive({ max: 2 });
        assert.deepEqual(
          messages.map(({ payload }) => Buffer.from(payload).toString()),
          ['b'],
        );
        answers.received.push(...messages.map(leaseOf));
      },
    };
    return {
      tasks: {
        client: async () => {
          for (const call of calls) {
            await client[call]();
            note();
          }
        },
        compactor: async () => {
          assert.ok(await compactor.compactOldest(NEVER));
        },
      },
      final: () => {
        assert.ok(!log.segments.files.has(oldest!), 'the segment was not removed');
        const acked = answers.acked.length;
        assert.deepEqual([box.counts.acked, box.counts.waiting], [acked, 2 - acked], 'an acked message is back');
      },
    };
  });
};

/** Compares a start with the answers before the crash. */
export function checkStart({ parts, ledgerProblem }: Mailbox, answers: Answers, crash: Crash): void {
  const { state, topics } = parts;
  const { received, acking, acked } = answers;
  assert.equal(ledgerProblem, undefined);
  const topic = topics.find(TOPIC)!;
  for (const [index, { seq, attempts, token }] of received.entries()) {
    const slot = state.find(seq);
    if (acked.includes(seq)) assert.ok(slot < 0, `message ${seq} was acked and is back`);
    if (!acking.includes(seq)) assert.ok(slot >= 0, `message ${seq} is lost`);
    // No sync may have covered the lease of the message that was received during the compaction.
    if (slot < 0 || (crash === 'power cut' && index > 0)) continue;
    assert.equal(state.view(slot).attempts, attempts, `an attempt of message ${seq} is lost`);
    const checked = state.check(topic.state, decodeToken(token, topic.tag)!);
    assert.equal(checked, slot, `the lease of message ${seq} is lost`);
  }
}
