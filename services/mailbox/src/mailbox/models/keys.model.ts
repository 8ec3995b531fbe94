/**
 * Two messages of one key, on the real mailbox: the first is settled while the second is sent and a receiver comes.
 *
 * The second message is leased only after the first is acked or dead, and can be leased then.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NONE, STATE } from '../../queue/states.ts';
import { onMailbox, type Parts } from './testing/model-mailbox.ts';

const KEY = { key: 'k' };

/** How the consumer ends the first delivery. */
export type How = 'ack' | 'nack' | 'dead';

export const oneOfAKey = (parts: Parts, how: How): Build =>
  onMailbox(parts, {}, async (box) => {
    const first = await box.send('1', KEY);
    const message = (await box.receive())[0]!;
    const received: number[] = [];
    const { state } = box.mailbox.parts;
    const isFirstWaiting = (): boolean => {
      const slot = state.find(first);
      return slot !== NONE && state.stateOf(slot) !== STATE.dead;
    };
    const isSecondLeased = (): boolean =>
      state.waitingAfter(box.counts, first, 1).some((slot) => state.stateOf(slot) === STATE.leased);
    return {
      tasks: {
        sender: async () => void (await box.send('2', KEY)),
        consumer: async () => {
          if (how === 'ack') await box.ack(message);
          else await box.nack(message, how === 'dead' ? { dead: true } : { delay_ms: 0 });
        },
        receiver: async () => {
          const messages = await box.receive({ max: 2 });
          received.push(...messages.map(({ seq }) => seq));
        },
      },
      invariant: () => assert.ok(!isFirstWaiting() || !isSecondLeased(), 'the second message passed the first'),
      final: () => {
        assert.equal(isFirstWaiting(), how === 'nack');
        assert.equal(box.counts.leased, received.length);
        // Of the messages that wait, the first can be leased, unless a message of the key is leased.
        assert.equal(box.counts.visible, received.length === 0 ? 1 : 0, 'the key is not free, or has two messages');
      },
    };
  });
