/**
 * A crash at every moment, and the start after it, on the real mailbox.
 *
 * A consumer receives two messages, of which one was delivered before, and acks the first one. A sender sends another one.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NEVER } from '@ron/kernel';
import type { Mailbox } from '../mailbox.ts';
import { decodeToken } from '../receive/token.ts';
import { filesOf, type Crash, type CrashPoints } from './testing/crash-points.ts';
import type { Files } from './testing/model-disk.ts';
import { onMailbox, TOPIC, type Parts } from './testing/model-mailbox.ts';

/** The calls and answers of the clients so far. */
export interface Answers {
  readonly sent: number[];
  readonly acking: number[];
  readonly acked: number[];
  readonly received: { readonly seq: number; readonly attempts: number; readonly token: string }[];
}

/** Two messages wait; the first one was delivered once. */
export const twoMessages = (): Promise<Files> =>
  filesOf(async (mailbox) => {
    await mailbox.send([{ topic: TOPIC, payload: Buffer.from('a') }], NEVER);
    const { messages } = await mailbox.receive(TOPIC, {}, NEVER);
    await mailbox.nack(TOPIC, [messages[0]!.token], { delay_ms: 0 }, NEVER);
    await mailbox.send([{ topic: TOPIC, payload: Buffer.from('b') }], NEVER);
  });

export const crashes = (parts: Parts, files: Files, points: CrashPoints<Answers>): Build =>
  onMailbox(parts, { files }, async (box, world) => {
    const answers: Answers = { sent: [], acking: [], acked: [], received: [] };
    const note = (): void => points.note(box.disk, answers, world.now_ms());
    box.disk.onChange = note;
    return {
      tasks: {
        consumer: async () => {
          const messages = await box.receive({ max: 2 });
          const [first] = messages;
          answers.received.push(...messages.map(({ seq, attempts, token }) => ({ seq, attempts, token })));
          answers.acking.push(first!.seq);
          note();
          assert.equal(await box.ack(first!), 'ok');
          answers.acked.push(first!.seq);
          note();
        },
        sender: async () => {
          answers.sent.push(await box.send('c'));
          note();
        },
      },
      final: () => assert.deepEqual([box.counts.acked, box.counts.waiting], [1, 2]),
    };
  });

/** Compares a start with the answers before the crash. */
export function checkStart({ parts, ledgerProblem }: Mailbox, answers: Answers, crash: Crash): void {
  const { state, topics } = parts;
  const { sent, acking, acked, received } = answers;
  assert.equal(ledgerProblem, undefined);
  for (const seq of sent) assert.ok(state.find(seq) >= 0, `message ${seq} was sent and is lost`);
  for (const seq of acked) assert.ok(state.find(seq) < 0, `message ${seq} was acked and is back`);
  // A lease is written before it is answered, and the sync of the ack covers it.
  const isLeaseKept = crash === 'kill' || acked.length > 0;
  const topic = topics.find(TOPIC)!;
  for (const { seq, attempts, token } of received) {
    const slot = state.find(seq);
    if (slot < 0) {
      assert.ok(acking.includes(seq), `message ${seq} was not acked and is lost`);
      continue;
    }
    const lost = attempts - state.view(slot).attempts;
    assert.ok(lost === 0 || (lost === 1 && !isLeaseKept), `message ${seq} lost ${lost} of ${attempts} attempts`);
    const checked = state.check(topic.state, decodeToken(token, topic.tag)!);
    if (isLeaseKept) assert.equal(checked, slot, `the lease of message ${seq} is lost`);
  }
}
