/** One suite for `Peers`: our adapter and a peer with a stock kad-dht, as the one that asks and as the one that answers. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import type { Peers } from '../peers.ts';
import { StockPeers } from './testing/stock-peers.ts';
import { signedName } from './testing/test-names.ts';
import { keyOf, openNode, refOf } from './testing/test-node.ts';

const failures: unknown[] = [];
process.on('unhandledRejection', (error) => failures.push(error));

const OPEN = {
  ron: async (): Promise<Peers> => (await openNode()).peers,
  stock: async (): Promise<Peers> => await StockPeers.open(),
};

for (const [asker_kind, answerer_kind] of [
  ['ron', 'ron'],
  ['ron', 'stock'],
  ['stock', 'ron'],
] as const) {
  describe(`${asker_kind} asks ${answerer_kind}`, () => {
    let asker: Peers;
    let answerer: Peers;
    let other: Peers;
    before(async () => {
      [asker, answerer, other] = await Promise.all([OPEN[asker_kind](), OPEN[answerer_kind](), OPEN.ron()]);
    });
    after(async () => {
      await Promise.all([asker, answerer, other].map((peers) => peers[Symbol.asyncDispose]()));
    });

    test('an unknown key has no providers and no value', async () => {
      const key = keyOf('unknown');
      assert.deepEqual((await asker.getProviders(refOf(answerer), key, NEVER)).providers, []);
      const { value } = await asker.getValue(refOf(answerer), signedName('unknown', 1).key, NEVER);
      assert.equal(value, undefined);
    });

    test('a provider of another node is found with its own storage URL', async () => {
      const key = keyOf('provided');
      await other.addProvider(refOf(answerer), [key], NEVER);
      const { providers } = await asker.getProviders(refOf(answerer), key, NEVER);
      assert.deepEqual(
        providers.map(({ id }) => id),
        [other.self],
      );
      assert.match(providers[0]?.url ?? '', /^http:\/\/127\.0\.0\.1:7\d\d\d$/);
    });

    test('150 keys are provided at once', async () => {
      const keys = Array.from({ length: 150 }, (_, i) => keyOf(`${asker_kind} ${i}`));
      await asker.addProvider(refOf(answerer), keys, NEVER);
      await eventually(
        'the last key is stored',
        async () => (await other.getProviders(refOf(answerer), keys[149]!, NEVER)).providers.length === 1,
      );
      for (const key of [keys[0]!, keys[64]!, keys[149]!]) {
        const { providers } = await other.getProviders(refOf(answerer), key, NEVER);
        assert.deepEqual(
          providers.map(({ id }) => id),
          [asker.self],
        );
      }
    });

    test('a value is put and got', async () => {
      const { key, value } = signedName('docs/report', 1);
      await asker.putValue(refOf(answerer), key, value, NEVER);
      const answer = await asker.getValue(refOf(answerer), key, NEVER);
      assert.deepEqual(Buffer.from(answer.value!), Buffer.from(value));
    });

    test('closer peers are named with addresses that can be dialed', async () => {
      await eventually('the answerer knows both', () => answerer.known >= 2);
      const closer = await asker.findNode(refOf(answerer), keyOf('near'), NEVER);
      const named = closer.find(({ id }) => id === other.self);
      assert.ok(
        named?.addrs.some((addr) => other.listening.some((own) => own.startsWith(addr))),
        JSON.stringify(closer),
      );
      const answer = await asker.getProviders(refOf(answerer), keyOf('near'), NEVER);
      assert.ok(answer.closer.some(({ id }) => id === other.self));
      // The addresses of the answer are enough to reach the peer.
      await asker.getProviders(named!, keyOf('near'), NEVER);
    });

    test('the peer that answered is in the table of the one that asked', async () => {
      await eventually('the asker knows a peer', () => asker.known >= 1);
      const closest = await asker.closest(keyOf('near'), 20);
      assert.ok(closest.some(({ id }) => id === answerer.self));
      assert.ok(closest.every(({ id }) => id !== asker.self));
    });

    test('an aborted signal ends the request with its reason', async () => {
      const reason = new Error('the caller left');
      await assert.rejects(asker.getProviders(refOf(answerer), keyOf('x'), AbortSignal.abort(reason)));
    });
  });
}

test('no rejection stayed unhandled', () => {
  assert.deepEqual(failures, []);
});
