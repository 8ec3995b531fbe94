/** A mailbox without HTTP on a clock and a disk that the test controls. */
import { rm } from 'node:fs/promises';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { FaultyDisk } from '@ron/log/testing';
import type { NackRequest, OutgoingMessage, ReceivedMessage, ReceiveRequest, SendResult } from '@ron/proto';
import { tempDir } from '@ron/testkit';
import type { MailboxEvent } from '../../src/events.ts';
import { Mailbox, type MailboxInit } from '../../src/mailbox/mailbox.ts';

const DAY_MS = 86_400_000;
export const TOPIC = 'jobs';

type Topics = MailboxInit['config']['value']['topics'];

const TOPICS: Topics = {
  max_messages: 1000,
  max_bytes: 1024 * 1024,
  max_age: 7 * DAY_MS,
  max_deliveries: 3,
  window: 300_000,
  hooks_window: DAY_MS,
  dead_max_age: 14 * DAY_MS,
  dead_max_messages: 100,
  dead_max_bytes: 1024 * 1024,
};

export interface TestBox {
  readonly clock: VirtualSched;
  readonly disk: FaultyDisk;
  readonly events: MailboxEvent[];
  readonly box: Mailbox;
  /** Closes the mailbox and opens it again; `while closed` runs in between. */
  readonly reopen: (whileClosed?: () => void | Promise<void>) => Promise<void>;
  /** Moves time, and ends the leases and delays that are due. */
  readonly advance: (ms: number) => Promise<void>;
  readonly send: (payload: string, more?: Partial<OutgoingMessage>) => Promise<SendResult>;
  readonly receive: (request?: ReceiveRequest, topic?: string) => Promise<readonly ReceivedMessage[]>;
  readonly ack: (...messages: readonly ReceivedMessage[]) => Promise<readonly string[]>;
  readonly nack: (message: ReceivedMessage, how?: NackRequest) => Promise<readonly string[]>;
}

/** Runs `use` with a new mailbox in a temporary directory. */
export async function withMailbox(
  use: (test: TestBox) => Promise<void>,
  topics: Partial<Topics> = {},
  init: Partial<MailboxInit> = {},
): Promise<void> {
  const clock = new VirtualSched(1_000_000);
  await using temp = await tempDir();
  await clock.during(async () => {
    const disk = new FaultyDisk();
    const events: MailboxEvent[] = [];
    const open = (): Promise<Mailbox> =>
      Mailbox.open({
        dir: temp.path,
        fs: disk,
        segment_bytes: 4 * 1024 * 1024,
        config: { value: { topics: { ...TOPICS, ...topics }, mailbox: { auto_topics: true } } },
        holds_max: 4,
        onEvent: (event) => void events.push(event),
        signal: NEVER,
        ...init,
      });
    let box = await open();
    const test: TestBox = {
      clock,
      disk,
      events,
      get box() {
        return box;
      },
      async reopen(whileClosed) {
        await box.close();
        await whileClosed?.();
        box = await open();
      },
      async advance(ms) {
        await clock.advance(ms);
        await expire(box, clock);
      },
      send: async (payload, more = {}) =>
        (await box.send([{ topic: TOPIC, payload: Buffer.from(payload), ...more }], NEVER))[0]!,
      receive: async (request = {}, topic = TOPIC) =>
        (await box.receive(topic, { max: 128, ...request }, NEVER)).messages,
      ack: (...messages) =>
        box.ack(
          TOPIC,
          messages.map(({ token }) => token),
          NEVER,
        ),
      nack: (message, how = {}) => box.nack(TOPIC, [message.token], how, NEVER),
    };
    try {
      await use(test);
    } finally {
      disk.mend();
      await box.close();
    }
  });
  await rm(temp.path, { recursive: true, force: true });
}

async function expire(box: Mailbox, clock: VirtualSched): Promise<void> {
  for (;;) {
    const { dead, hasMore } = box.parts.clock.step(clock.now_ms());
    await box.parts.clock.commit(dead, NEVER);
    if (!hasMore) return;
  }
}

export const texts = (messages: readonly ReceivedMessage[]): string[] =>
  messages.map(({ payload }) => Buffer.from(payload).toString());

/** The id and number of a stored message; fails the test if it was refused. */
export function stored(result: SendResult): { readonly id: string; readonly seq: number; readonly duplicate: boolean } {
  if ('error' in result) throw new Error(`refused: ${result.error}`);
  return result;
}
