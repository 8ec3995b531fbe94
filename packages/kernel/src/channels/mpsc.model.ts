/** The promises of Mpsc under every schedule. Each model takes the class, so that a broken one can be put in its place. */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import type { Mpsc, SendResult } from './mpsc.ts';

export type MpscClass = typeof Mpsc;

const WAIT_MS = 200;

/** A send that has not been answered yet. */
interface Send {
  readonly item: string;
  readonly until_ms: number;
  /** There was room before its time ran out. Then it may not be refused. */
  sawRoom: boolean;
}

/**
 * Records the reports of senders and one receiver, and checks them. Items that were sent and not received yet
 * are kept in the order in which they were sent: with the depth that is the whole content of a first-in first-out
 * channel.
 */
class Ledger {
  readonly outstanding: string[] = [];
  readonly sends: Send[] = [];
  readonly received = new Set<string>();
  readonly accepted = new Set<string>();
  /** Sent before something that has been received. They may be refused, but no longer be accepted. */
  readonly overtaken = new Set<string>();
  readonly #world: World;
  readonly #channel: Mpsc<string>;

  constructor(world: World, channel: Mpsc<string>) {
    this.#world = world;
    this.#channel = channel;
  }

  async send(item: string, signal: AbortSignal): Promise<SendResult> {
    const send = { item, until_ms: this.#world.now_ms() + WAIT_MS, sawRoom: false };
    this.outstanding.push(item);
    this.sends.push(send);
    const result = await this.#channel.sendWithin(item, WAIT_MS, signal);
    this.sends.splice(this.sends.indexOf(send), 1);
    this.#noticeRoom();
    if (result === 'ok') {
      assert.ok(!this.overtaken.has(item), `${item} was overtaken`);
      this.accepted.add(item);
    } else {
      assert.ok(result === 'closed' || !send.sawRoom, `${item} was refused though there was room`);
      this.outstanding.splice(this.outstanding.indexOf(item), 1);
    }
    return result;
  }

  receive(item: string): void {
    assert.ok(!this.received.has(item), `${item} came twice`);
    this.received.add(item);
    const at = this.outstanding.indexOf(item);
    for (const earlier of this.outstanding.slice(0, at)) {
      assert.ok(!this.accepted.has(earlier), `${item} overtook ${earlier}`);
      this.overtaken.add(earlier);
    }
    this.outstanding.splice(at, 1);
    this.#noticeRoom();
  }

  state(): string {
    const sends = this.sends.map(({ item, sawRoom }) => item + (sawRoom ? '!' : ''));
    const sets = [sends, this.received, this.accepted, this.overtaken].map((set) => [...set].toSorted());
    return [this.outstanding, ...sets, this.#channel.depth, this.#channel.isClosed].join(';');
  }

  /** At most `capacity` are inside, and one more on its way to the receiver. */
  invariant(): void {
    const { depth, capacity } = this.#channel;
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
    assert.ok(depth <= capacity, `${depth} in a channel for ${capacity}`);
    const inside = [...this.accepted].filter((item) => !this.received.has(item));
    assert.ok(inside.length <= capacity + 1, `accepted and not received: ${inside.join()}`);
  }

  /** Every accepted item came out or is still inside, and nothing else did. */
  final(): void {
    for (const item of this.#channel.recvMany(1_000, new AbortController().signal) as string[]) this.receive(item);
    assert.deepEqual([...this.received].toSorted(), [...this.accepted].toSorted());
  }

  #noticeRoom(): void {
    if (this.#channel.depth === this.#channel.capacity) return;
    for (const send of this.sends) if (this.#world.now_ms() < send.until_ms) send.sawRoom = true;
  }
}

export interface PipelineInit {
  readonly capacity: number;
  /** How many jobs each producer has. */
  readonly jobs: readonly number[];
  /** How it ends: the channel is closed and drained, or the consumer is cancelled too. */
  readonly shutdown: readonly ('drain' | 'abort')[];
}

/** Producers that wait for room, a consumer that works on each job, and a shutdown at any moment. */
export function pipeline(Channel: MpscClass, init: PipelineInit): Build {
  return (world) => {
    const channel = new Channel<string>('jobs', init.capacity);
    const ledger = new Ledger(world, channel);
    const stop = new AbortController();
    const forever = new AbortController().signal;
    let shutdown = '';

    for (const [producer, jobs] of init.jobs.entries()) {
      world.task(`producer ${producer}`, async () => {
        for (let job = 0; job < jobs; job += 1) {
          await world.io('job arrives');
          if ((await ledger.send(`${'abc'[producer]}${job}`, forever)) === 'closed') return;
        }
      });
    }
    world.task('consumer', async () => {
      try {
        for (;;) {
          const job = await channel.recv(stop.signal);
          if (job === undefined) return;
          ledger.receive(job);
          await world.io('work');
        }
      } catch (error) {
        assert.equal(error, stop.signal.reason);
      }
    });
    world.task('shutdown', async () => {
      shutdown = world.choose('shutdown', init.shutdown);
      channel.close();
      if (shutdown === 'abort') stop.abort(new Error('stopped'));
    });
    return {
      state: () => `${shutdown};${ledger.state()}`,
      invariant: () => ledger.invariant(),
      final: () => {
        if (shutdown === 'drain') assert.equal(channel.depth, 0, 'the consumer left before it was all drained');
        ledger.final();
      },
    };
  };
}

export interface AuditInit {
  readonly capacity: number;
  /** Each writer's records; those that begin with '!' are protected. */
  readonly writers: readonly (readonly string[])[];
}

/** Writers that wait a while for room and then drop the oldest record that is not protected; a slow reader. */
export function waitThenDropOldest(Channel: MpscClass, init: AuditInit): Build {
  return (world) => {
    const channel = new Channel<string>('audit', init.capacity);
    const forever = new AbortController().signal;
    const received: string[] = [];
    const dropped: string[] = [];
    const refused: string[] = [];
    /** In the order of the moments from which they could be in the queue: its content, for the state. */
    const sent: string[] = [];
    let writing = init.writers.length;

    for (const [writer, records] of init.writers.entries()) {
      world.task(`writer ${writer}`, async () => {
        for (const record of records) {
          await world.io('event');
          sent.push(record);
          if ((await channel.sendWithin(record, WAIT_MS, forever)) === 'ok') continue;
          sent.push(record);
          const pushed = channel.pushDropOldest(record, (queued) => queued.startsWith('!'));
          if (pushed.result === 'full') refused.push(record);
          if (pushed.dropped !== undefined) dropped.push(pushed.dropped);
        }
        writing -= 1;
        if (writing === 0) channel.close();
      });
    }
    world.task('reader', async () => {
      for (;;) {
        const record = await channel.recv(forever);
        if (record === undefined) return;
        received.push(record);
        await world.io('write to disk');
      }
    });
    return {
      state: () => [sent, received, dropped, refused, channel.depth].join(';'),
      invariant: () => {
        assert.ok(channel.depth <= init.capacity, `${channel.depth} in a channel for ${init.capacity}`);
        assert.deepEqual(
          dropped.filter((record) => record.startsWith('!')),
          [],
          'a protected record was dropped',
        );
      },
      final: () => {
        const all = init.writers.flat();
        assert.deepEqual([...received, ...dropped, ...refused].toSorted(), all.toSorted(), 'each record exactly once');
        assert.equal(channel.dropped_total, dropped.length);
      },
    };
  };
}

/** Receivers whose signal aborts at any moment, while items arrive: an item that one did not get, another gets. */
export function cancelledReceive(
  Channel: MpscClass,
  init: { capacity: number; items: number; receivers: number },
): Build {
  return (world) => {
    const channel = new Channel<string>('jobs', init.capacity);
    const cancel = new AbortController();
    const received: string[] = [];
    /** Who waits, in the order in which they came. */
    const waiting: string[] = [];

    const next = async (name: string, signal: AbortSignal): Promise<(string | undefined)[]> => {
      waiting.push(name);
      try {
        return name.endsWith('1') ? await channel.recvMany(2, signal) : [await channel.recv(signal)];
      } finally {
        waiting.splice(waiting.indexOf(name), 1);
      }
    };
    const receive = async (name: string, signal: AbortSignal): Promise<void> => {
      for (;;) {
        const items = await next(name, signal);
        if (items[0] === undefined) return;
        received.push(...(items as string[]));
      }
    };
    for (let receiver = 0; receiver < init.receivers; receiver += 1) {
      const name = `receiver ${receiver}`;
      world.task(name, () =>
        receive(name, cancel.signal).catch((error: unknown) => assert.equal(error, cancel.signal.reason)),
      );
    }
    world.task('patient', () => receive('patient', new AbortController().signal));
    world.task('canceller', async () => cancel.abort(new Error('cancelled')));
    world.task('sender', async () => {
      for (let item = 0; item < init.items; item += 1) {
        await world.io('job arrives');
        assert.notEqual(await channel.sendWithin(`a${item}`, WAIT_MS, new AbortController().signal), 'closed');
      }
      channel.close();
    });
    return {
      state: () => [received, waiting, channel.depth, channel.isClosed, channel.rejected_total].join(';'),
      final: () => {
        // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5]
        assert.equal(new Set(received).size, received.length, 'an item came twice');
        assert.equal(received.length + channel.rejected_total, init.items, `only ${received.join()} came out`);
      },
    };
  };
}
