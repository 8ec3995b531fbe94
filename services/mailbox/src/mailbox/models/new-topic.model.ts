/**
 * Calls that create a topic at the same time, on the real mailbox: a policy, a send that fits, a send that is refused, and a
 * policy whose caller leaves. A send to another new topic runs beside them. A sync may fail.
 *
 * Each topic keeps its number and its messages, whichever call creates it and whichever fails.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError, NEVER } from '@ron/kernel';
import { onMailbox, type Parts } from './testing/model-mailbox.ts';

const NEW = 'new';
const OTHER = 'other';
const LATE = 'late';
/** More than `topics.max_bytes`. */
const TOO_LARGE = Buffer.alloc(2000);
const LEFT = new Error('left');

export interface NewTopicInit {
  readonly failures_max: number;
  readonly calls: readonly ('policy' | 'refused' | 'send' | 'other' | 'leave')[];
}

export const newTopic = (parts: Parts, { failures_max, calls: names }: NewTopicInit): Build =>
  onMailbox(parts, { failures_max }, async ({ mailbox }, world) => {
    /** Stored messages, by topic. */
    const sent = new Map<string, number>();
    let hasPolicy = false;
    const orFailed = async (call: Promise<void>): Promise<void> => {
      await call.catch((error: unknown) => {
        if (error !== LEFT && !(failures_max > 0 && isRonError(error, 'not_ready'))) throw error;
      });
    };
    const send = async (topic: string, payload: Buffer): Promise<void> => {
      const [result] = await mailbox.send([{ topic, payload }], NEVER);
      if ('error' in result!) return assert.equal(result.error, 'full');
      assert.ok(result!.seq > 0, 'a stored message has a number');
      sent.set(topic, (sent.get(topic) ?? 0) + 1);
    };
    const call = (work: () => Promise<void>) => (): Promise<void> => orFailed(work());
    const policy = async (): Promise<void> => {
      const { topic } = await mailbox.setPolicy(NEW, { max_messages: 5 }, NEVER);
      assert.equal(topic, NEW);
      hasPolicy = true;
    };
    const leaving = new AbortController();
    const calls = {
      policy: call(policy),
      refused: call(() => send(NEW, TOO_LARGE)),
      send: call(() => send(NEW, Buffer.from('a'))),
      other: call(() => send(OTHER, Buffer.from('b'))),
      leave: async (): Promise<void> => {
        const left = mailbox.setPolicy(NEW, {}, leaving.signal).then(() => undefined);
        await Promise.all([orFailed(left), world.io('leave').then(() => leaving.abort(LEFT))]);
      },
    };
    return {
      tasks: Object.fromEntries(names.map((name) => [name, calls[name]])),
      final: () => {
        const { topics, state } = mailbox.parts;
        if (hasPolicy) assert.ok(topics.find(NEW) !== undefined, 'the topic with the policy exists');
        // It takes the first free number.
        topics.forSend(LATE, true);
        const numbers = state.topics().map(({ index }) => index);
        assert.equal(new Set(numbers).size, numbers.length, 'two topics share a number');
        for (const [topic, count] of sent) {
          const slots = state.peek(topics.find(topic)!.state, 10);
          const own = slots.filter((slot) => state.topicOf(slot).name === topic);
          assert.equal(own.length, count, `messages of ${topic}`);
        }
      },
    };
  });
