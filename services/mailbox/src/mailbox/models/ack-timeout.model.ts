/**
 * An ack against the end of its lease, on the real mailbox. A second receiver comes at any moment.
 *
 * Exactly one of them keeps it: the ack is `ok` and the message is not delivered again, or the message is delivered again
 * and the ack is `stale` and changes nothing.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import type { TokenResult } from '@ron/proto';
import { onMailbox, type Parts } from './testing/model-mailbox.ts';

const VISIBILITY_MS = 1000;

export const ackAgainstTimeout = (parts: Parts): Build =>
  onMailbox(parts, {}, async (box) => {
    await box.send('a');
    const [message] = await box.receive({ visibility_ms: VISIBILITY_MS });
    let ack: TokenResult | undefined;
    let redelivered = 0;
    return {
      background: { 'lease clock': box.leaseClock },
      tasks: {
        consumer: async () => {
          ack = await box.ack(message!);
        },
        receiver: async () => {
          redelivered = (await box.receive()).length;
        },
      },
      final: () => {
        assert.ok(ack === 'stale' || redelivered === 0, 'an acked message was delivered again');
        assert.ok(ack === 'ok' || redelivered === 1, 'the message was neither acked nor delivered again');
        assert.deepEqual([box.counts.acked, box.counts.waiting], [1 - redelivered, redelivered]);
      },
    };
  });
