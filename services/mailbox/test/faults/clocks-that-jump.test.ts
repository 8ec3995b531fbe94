/** The wall clock jumps by an hour in both directions, while the mailbox runs and while it is stopped. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem } from '@ron/log/testing';
import type { ReceivedMessage } from '@ron/proto';
import { bytesOf } from '@ron/testkit';
import { openMailbox, type OpenMailbox } from '../histories/open-mailbox.ts';

const HOUR_MS = 3_600_000;
const topic = 'jobs';
const VISIBILITY_MS = 30_000;
/** The longest backoff of the first failure. */
const BACKOFF_MS = 1000;

/** Virtual time whose wall clock can be set. */
class JumpingSched extends VirtualSched {
  jump_ms = 0;

  override wall_ms(): number {
    return super.wall_ms() + this.jump_ms;
  }
}

const send = (mailbox: OpenMailbox, more: object = {}): Promise<unknown> =>
  mailbox.operations.send([{ topic, payload: bytesOf(100), ...more }], NEVER);

async function receive(mailbox: OpenMailbox, visibility_ms = VISIBILITY_MS): Promise<readonly ReceivedMessage[]> {
  return (await mailbox.operations.receive(topic, { max: 10, visibility_ms }, NEVER)).messages;
}

const JUMPS = [
  ['forward', HOUR_MS],
  ['back', -HOUR_MS],
] as const;

suite('[mailbox I-9] while it runs', () => {
  for (const [name, jump_ms] of JUMPS) {
    test(`an hour ${name}: leases and delays last as long as without the jump`, async () => {
      const time = new JumpingSched(1000);
      await time.during(async () => {
        const mailbox = await openMailbox(new CrashFileSystem());
        await send(mailbox);
        await send(mailbox, { delay_ms: 20_000 });
        assert.equal((await receive(mailbox)).length, 1);
        time.jump_ms = jump_ms;
        await time.advance(19_000);
        assert.deepEqual(await receive(mailbox), []);
        await time.advance(1100);
        assert.equal((await receive(mailbox, HOUR_MS)).length, 1, 'the delay is over');
        await time.advance(VISIBILITY_MS - 20_100 - 1000);
        assert.deepEqual(await receive(mailbox), [], 'the lease lasts');
        await time.advance(1000 + BACKOFF_MS + 10);
        const [again] = await receive(mailbox);
        assert.deepEqual([again?.delivery, again?.attempts], [2, 2], 'the lease is over');
        await mailbox.close();
      });
    });
  }
});

suite('[mailbox I-9] over a restart', () => {
  for (const [name, jump_ms] of JUMPS) {
    test(`an hour ${name}: a lease ends within its visibility, and its token stays valid`, async () => {
      const time = new JumpingSched(1000);
      await time.during(async () => {
        const disk = new CrashFileSystem();
        const before = await openMailbox(disk);
        await send(before);
        await send(before);
        const [first] = await receive(before);
        await time.advance(10_000);
        await before.close();
        time.jump_ms = jump_ms;
        const mailbox = await openMailbox(disk);
        assert.deepEqual(await mailbox.operations.ack(topic, [first!.token], NEVER), ['ok']);
        await time.advance(VISIBILITY_MS + BACKOFF_MS + 10);
        const rest = await receive(mailbox);
        assert.deepEqual(
          rest.map(({ delivery, attempts }) => [delivery, attempts]),
          [[2, 2]],
        );
        await mailbox.close();
      });
    });

    test(`an hour ${name}: a delay ends within its length`, async () => {
      const time = new JumpingSched(1000);
      await time.during(async () => {
        const disk = new CrashFileSystem();
        const before = await openMailbox(disk);
        await send(before, { delay_ms: 60_000 });
        await before.close();
        time.jump_ms = jump_ms;
        const mailbox = await openMailbox(disk);
        await time.advance(60_010);
        assert.equal((await receive(mailbox)).length, 1);
        await mailbox.close();
      });
    });

    test(`an hour ${name}: the delay of a nack ends within its length`, async () => {
      const time = new JumpingSched(1000);
      await time.during(async () => {
        const disk = new CrashFileSystem();
        const before = await openMailbox(disk);
        await send(before);
        const tokens = (await receive(before)).map(({ token }) => token);
        await before.operations.nack(topic, tokens, { delay_ms: 60_000 }, NEVER);
        await before.close();
        time.jump_ms = jump_ms;
        const mailbox = await openMailbox(disk);
        await time.advance(60_010);
        assert.equal((await receive(mailbox)).length, 1);
        await mailbox.close();
      });
    });
  }

  test('without a jump, the rest of a lease, its attempts and its token survive', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      const disk = new CrashFileSystem();
      const before = await openMailbox(disk);
      await send(before);
      const [leased] = await receive(before);
      await time.advance(10_000);
      await before.close();
      const mailbox = await openMailbox(disk);
      await time.advance(VISIBILITY_MS - 10_000 - 100);
      assert.deepEqual(await receive(mailbox), [], 'the lease lasts');
      assert.deepEqual(await mailbox.operations.extend(topic, [leased!.token], VISIBILITY_MS, NEVER), ['ok']);
      await time.advance(VISIBILITY_MS - 100);
      assert.deepEqual(await receive(mailbox), [], 'the extended lease lasts');
      await time.advance(100 + BACKOFF_MS + 10);
      const [again] = await receive(mailbox);
      assert.deepEqual([again?.delivery, again?.attempts], [2, 2]);
      assert.deepEqual(await mailbox.operations.ack(topic, [leased!.token], NEVER), ['stale']);
      await mailbox.close();
    });
  });
});
