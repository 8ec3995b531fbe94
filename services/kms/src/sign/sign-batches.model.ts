/**
 * Messages on their way to the backend, on the real batches: rounds begin at any moment, and calls may fail.
 *
 * Every message is answered once, with its own signature or the error of its call. Of one key one call is under way.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Deadline } from '@ron/kernel';
import type { SignBatches, SigningBackend } from './signer.ts';

export interface SignBatchesInit {
  readonly rounds: readonly (readonly string[])[];
  readonly mayFail: boolean;
}

export function signBatches(Batches: typeof SignBatches, { rounds, mayFail }: SignBatchesInit): Build {
  return (world) => {
    /** A call that was given up does not count: nobody waits for it. */
    const underWay = new Set<AbortSignal>();
    const call = async (messages: readonly Uint8Array[], signal: AbortSignal) => {
      underWay.add(signal);
      await world.io('sign');
      underWay.delete(signal);
      if (mayFail && world.choose('backend', ['signs', 'fails']) === 'fails') throw new Error('away');
      return messages.map((message) => [{ alg: 'ed25519' as const, signature: message }]);
    };
    const backend: SigningBackend = {
      sign: async (_key, message, signal) => (await call([message], signal))[0]!,
      signMany: (_key, messages, signal) => call(messages, signal),
    };
    const batches = new Batches(backend, () => Deadline.after('sign', 1e9));
    let answered = 0;
    rounds.forEach((messages, at) => {
      world.task(`round ${at}`, async () => {
        const signed = messages.map((message) => batches.sign('key', Buffer.from(message)));
        batches.send();
        for (const [index, outcome] of (await Promise.allSettled(signed)).entries()) {
          answered += 1;
          if (outcome.status === 'fulfilled') {
            assert.equal(
              Buffer.from(outcome.value[0]!.signature).toString(),
              messages[index],
              'it is of another message',
            );
          }
        }
      });
    });
    return {
      invariant: () => {
        const live = [...underWay].filter((signal) => !signal.aborted);
        assert.ok(live.length <= 1, 'two calls with one key are under way');
      },
      final: () => assert.equal(answered, rounds.flat().length, 'every message is answered'),
    };
  };
}
