/** A wall clock that is wrong for a while: no message expires, no dead letter is dropped, no key is forgotten. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem } from '@ron/log/testing';
import { Mailbox } from '../../src/mailbox/mailbox.ts';
import { AgeClock } from '../../src/mailbox/age-clock.ts';
import { TOPIC } from './support.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const PAGE = 128;

class JumpingSched extends VirtualSched {
  jump_ms = 0;

  override wall_ms(): number {
    return super.wall_ms() + this.jump_ms;
  }
}

const open = (fs: CrashFileSystem): Promise<Mailbox> =>
  Mailbox.open({
    dir: '/mailbox',
    fs,
    segment_bytes: 4 * 1024 * 1024,
    config: {
      value: {
        topics: {
          max_messages: 1000,
          max_bytes: 1024 * 1024,
          max_age: 7 * DAY_MS,
          max_deliveries: 3,
          window: 5 * MINUTE_MS,
          hooks_window: DAY_MS,
          dead_max_age: 14 * DAY_MS,
          dead_max_messages: 1000,
          dead_max_bytes: 1024 * 1024,
        },
        mailbox: { auto_topics: true },
      },
    },
    holds_max: 4,
    onEvent: () => undefined,
    signal: NEVER,
  });

const send = async (box: Mailbox, more: object = {}) =>
  (await box.send([{ topic: TOPIC, payload: Buffer.from('x'), ...more }], NEVER))[0]!;

/** Sends a message with a key and makes a dead letter. */
async function fill(box: Mailbox): Promise<void> {
  await send(box);
  const { messages } = await box.receive(TOPIC, {}, NEVER);
  await box.nack(TOPIC, [messages[0]!.token], { dead: true }, NEVER);
  await send(box, { idempotency_key: 'k' });
}

const counts = (box: Mailbox) => {
  const { ready, dead, gone } = box.topic(TOPIC).ledger;
  return { ready, dead, gone };
};
const FILLED = { ready: 1, dead: 1, gone: 0 };

const isDuplicate = async (box: Mailbox): Promise<boolean> => {
  const result = await send(box, { idempotency_key: 'k' });
  assert.ok('duplicate' in result);
  return result.duplicate;
};

suite('[mailbox I-9] a wrong clock expires nothing', () => {
  test('while it runs: 15 days ahead for half an hour, or the same time back', async () => {
    for (const jump_ms of [15 * DAY_MS, -15 * DAY_MS]) {
      const time = new JumpingSched(1000);
      await time.during(async () => {
        const box = await open(new CrashFileSystem());
        await fill(box);
        time.jump_ms = jump_ms;
        await box.parts.retention.pass(NEVER);
        assert.equal(await isDuplicate(box), true);
        await fill(box);
        for (let pass = 0; pass < 30; pass++) {
          await time.advance(MINUTE_MS);
          await box.parts.retention.pass(NEVER);
        }
        time.jump_ms = 0;
        await time.advance(MINUTE_MS);
        await box.parts.retention.pass(NEVER);
        assert.deepEqual(counts(box), { ready: 1, dead: 2, gone: 0 });
        await box.close();
      });
    }
  });

  test('a clock that keeps its new time for an hour is followed', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      const box = await open(new CrashFileSystem());
      await fill(box);
      time.jump_ms = 15 * DAY_MS;
      await box.parts.retention.pass(NEVER);
      await time.advance(HOUR_MS);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts(box), { ready: 0, dead: 1, gone: 1 });
      await box.close();
    });
  });

  test('a start 15 days ahead of the newest record expires nothing within an hour', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      const disk = new CrashFileSystem();
      const before = await open(disk);
      await fill(before);
      await before.close();
      time.jump_ms = 15 * DAY_MS;
      const box = await open(disk);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts(box), FILLED);
      await time.advance(HOUR_MS);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts(box), { ready: 0, dead: 1, gone: 1 }, 'a queue that was stopped for 15 days');
      await box.close();
    });
  });

  test('a clock that is set right an hour before: messages sent since then do not expire', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      const box = await open(new CrashFileSystem());
      time.jump_ms = 15 * DAY_MS;
      await fill(box);
      await time.advance(HOUR_MS);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts(box), FILLED);
      await box.close();
    });
  });

  test('messages of the future do not hide later ones', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      const disk = new CrashFileSystem();
      time.jump_ms = 6 * DAY_MS;
      const ahead = await open(disk);
      for (let count = 0; count < 2 * PAGE; count++) await send(ahead, { delay_ms: DAY_MS });
      await ahead.close();
      time.jump_ms = 0;
      const box = await open(disk);
      await send(box);
      // In steps that the clock follows.
      for (let day = 0; day < 8 * 24 * 60; day++) {
        time.jump_ms += MINUTE_MS;
        box.parts.ages.now_ms();
      }
      await box.parts.retention.pass(NEVER);
      assert.equal(box.topic(TOPIC).ledger.dead, 1);
      await box.close();
    });
  });

  test('before 1970 messages are sent, received and settled', async () => {
    const time = new JumpingSched(1000);
    await time.during(async () => {
      time.jump_ms = -100 * 365 * DAY_MS;
      const disk = new CrashFileSystem();
      const box = await open(disk);
      await fill(box);
      const { messages } = await box.receive(TOPIC, {}, NEVER);
      assert.deepEqual(await box.nack(TOPIC, [messages[0]!.token], { delay_ms: 1000 }, NEVER), ['ok']);
      await box.close();
      const again = await open(disk);
      assert.equal(again.ledgerProblem, undefined);
      assert.equal(again.topic(TOPIC).ledger.dead, 1);
      await again.close();
    });
  });
});

test('the clock of ages follows small corrections at once, and a jump that changes is held again', async () => {
  const time = new JumpingSched(1000);
  await time.during(async () => {
    const ages = new AgeClock();
    time.jump_ms = 50_000;
    assert.equal(ages.now_ms(), time.wall_ms());
    time.jump_ms = HOUR_MS;
    const held_ms = ages.now_ms();
    assert.ok(held_ms < time.wall_ms());
    await time.advance(HOUR_MS - 1);
    time.jump_ms = 2 * HOUR_MS;
    assert.equal(ages.now_ms(), held_ms + HOUR_MS - 1);
    await time.advance(HOUR_MS - 1);
    assert.equal(ages.now_ms(), held_ms + 2 * HOUR_MS - 2);
    await time.advance(1);
    assert.equal(ages.now_ms(), time.wall_ms());
  });
});
