/**
 * Long polls against a send and clients that leave, on the real mailbox and the handover of the routes.
 *
 * While a receiver waits, its topic has no visible message: no wake-up is lost. A message that was given to a client that
 * left is ready again at once, or with another receiver: each leased message is in a complete answer.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import { NEVER } from '@ron/kernel';
import { handOver } from '../../routes/handover.ts';
import { onMailbox, TOPIC, type ModelMailbox, type Parts } from './testing/model-mailbox.ts';

const WAIT_MS = 1000;
const LEFT = new Error('the client left');

/** A client of the route. */
class Client {
  readonly #box: ModelMailbox;
  readonly #world: World;
  readonly #gone = new AbortController();
  readonly #draining: AbortSignal;
  #isEnded = false;
  /** Messages in a complete answer. */
  received = 0;

  constructor(box: ModelMailbox, world: World, draining = NEVER) {
    this.#box = box;
    this.#world = world;
    this.#draining = draining;
  }

  async poll(): Promise<void> {
    const { signal } = this.#gone;
    const request = { wait_ms: WAIT_MS };
    try {
      const { mailbox } = this.#box;
      const { messages } = handOver(await mailbox.awaitMessage(TOPIC, request, signal, this.#draining), signal);
      await this.#world.io('answer');
      signal.throwIfAborted();
      this.received = messages.length;
      this.#isEnded = true;
    } catch (error) {
      assert.equal(error, LEFT);
    }
  }

  /** Closes the connection, unless the answer is complete. */
  leave(): void {
    if (!this.#isEnded) this.#gone.abort(LEFT);
  }
}

/** No wake-up is lost. */
function assertServed({ counts, mailbox }: ModelMailbox): void {
  assert.ok(mailbox.parts.receivers.depth === 0 || counts.visible === 0, 'a receiver waits beside a visible message');
}

/** Each leased message is in a complete answer; the other ones are ready. */
function assertReceived({ counts }: ModelMailbox, received: number): void {
  assert.deepEqual([counts.leased, counts.ready], [received, 1 - received], 'a receiver that left has a message');
}

/** A message is sent while a client polls, and the client leaves or a drain begins. */
export const pollAgainstSend = (parts: Parts, end: 'leave' | 'drain'): Build =>
  onMailbox(parts, {}, async (box, world) => {
    const drain = new AbortController();
    const client = new Client(box, world, drain.signal);
    await box.mailbox.setPolicy(TOPIC, {}, NEVER);
    return {
      tasks: {
        sender: async () => void (await box.send('a')),
        client: () => client.poll(),
        [end]: async () => (end === 'leave' ? client.leave() : drain.abort()),
      },
      invariant: () => assertServed(box),
      final: () => assertReceived(box, client.received),
    };
  });

/** A client gets the only message and may leave before the answer is complete, while another receiver waits. */
export const pollAgainstLeave = (parts: Parts): Build =>
  onMailbox(parts, { slow: [] }, async (box, world) => {
    const client = new Client(box, world);
    let received = 0;
    await box.send('a');
    return {
      tasks: {
        client: () => client.poll(),
        leave: async () => client.leave(),
        receiver: async () => {
          received = (await box.awaitMessage({ wait_ms: WAIT_MS })).length;
        },
      },
      invariant: () => assertServed(box),
      final: () => assertReceived(box, client.received + received),
    };
  });
