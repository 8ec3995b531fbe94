import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { TOPIC, withMailbox } from './support.ts';

test('a close waits for background writes before it closes the log', async () => {
  await withMailbox(
    async (mailbox) => {
      const { clock, send, receive } = mailbox;
      await send('one');
      const [message] = await receive();
      const { background, settles } = mailbox.box.parts;
      const begin = Promise.withResolvers<void>();
      let results: readonly string[] = [];
      background.run(async () => {
        await begin.promise;
        results = await settles.ack(TOPIC, [message!.token], NEVER);
      });
      const reopened = mailbox.reopen();
      // More turns than a close takes on this disk.
      for (let turn = 0; turn < 20; turn++) await clock.settle();
      begin.resolve();
      await reopened;
      assert.deepEqual(results, ['ok']);
      assert.equal(mailbox.box.topic(TOPIC).ledger.acked, 1);
    },
    {},
    { fs: new CrashFileSystem() },
  );
});
