/** Polls, changes and a close against each other, on the real long poll and watch, under every schedule. */
import type { Build } from '@ron/explorer';
import { assert } from '../errors.ts';
import type { LongPoll } from './long-poll.ts';
import { touch } from '../sched.ts';
import { Watch } from '../channels/watch.ts';

/** The code under test: the module itself, or a mutant of it. */
export interface LongPollModule {
  readonly LongPoll: typeof LongPoll;
}

export interface Shape {
  readonly capacity: number;
  readonly clients: number;
  readonly event: 'close' | 'client leaves' | 'none';
}

/** A client that polls until it knows version 1 gets it, or is answered that there was nothing new in time. */
export function polls({ LongPoll }: LongPollModule, shape: Shape): Build {
  return (world) => {
    const watch = new Watch('revocations', 0);
    const poll = new LongPoll({ capacity: shape.capacity, hold_ms: 100, watch });
    const model = { changed_ms: Infinity, answered: 0, empty: 0 };
    const left = new AbortController();
    const never = new AbortController();
    for (let at = 0; at < shape.clients; at++) {
      world.task(`client ${at}`, async () => {
        const { signal } = at === 0 ? left : never;
        const wasFull = poll.depth >= shape.capacity;
        const began_ms = world.now_ms();
        const value = await poll.next((version) => version !== 0, signal);
        touch(model);
        model.answered += 1;
        if (value !== undefined) return assert(value === 1, 'a value that the client knows is not an answer');
        model.empty += 1;
        const isEnded = shape.event !== 'none' || world.now_ms() - began_ms >= 100;
        assert(isEnded || wasFull, 'a client with room is held until there is a value or the time is over');
        // The wait and the change may fall into the same moment; then either comes first.
        assert(isEnded || wasFull || model.changed_ms >= began_ms, 'a change was missed');
      });
    }
    world.task('change', async () => {
      watch.set(0);
      await world.io('between');
      watch.set(1);
      touch(model);
      model.changed_ms = world.now_ms();
    });
    if (shape.event !== 'none') {
      world.task(shape.event, async () => {
        if (shape.event === 'close') poll.close();
        else left.abort(new Error('disconnected'));
      });
    }
    return {
      invariant() {
        assert(poll.depth <= shape.capacity, 'more clients are held than the capacity');
      },
      final() {
        assert(model.answered === shape.clients, 'every client is answered');
        assert(poll.depth === 0, 'no client is held');
        assert(model.empty >= poll.rejected_total, 'a refused client gets no value');
      },
    };
  };
}

/** After a close no time has to pass: a drain does not wait for held clients. */
export function closes({ LongPoll }: LongPollModule): Build {
  return (world) => {
    const poll = new LongPoll({ capacity: 1, hold_ms: 100, watch: new Watch('revocations', 0) });
    const state = { closed_ms: Infinity };
    world.task('client', async () => {
      const began_ms = world.now_ms();
      const value = await poll.next((version) => version !== 0, new AbortController().signal);
      touch(state);
      assert(value === undefined, 'there is no new value');
      const isTimely = world.now_ms() - began_ms >= 100 || state.closed_ms <= world.now_ms();
      assert(isTimely, 'the client is held until the close or for its time');
      assert(poll.depth === 0, 'no client is held');
    });
    world.task('close', async () => {
      poll.close();
      touch(state);
      state.closed_ms = world.now_ms();
    });
    return { final: () => assert(world.now_ms() < 100 || state.closed_ms >= 100, 'a closed poll held its client') };
  };
}
