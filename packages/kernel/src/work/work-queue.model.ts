/** Clients, workers, deadlines and shutdown against each other, under every schedule. */
import type { Build, World } from '@ron/explorer';
import { Deadline } from '../time/deadline.ts';
import { assert, RonError } from '../errors.ts';
import type { LaneDeclaration, WorkQueue } from './work-queue.ts';

/** The code under test: the module itself, or a mutant of it. */
export interface WorkQueueModule {
  readonly WorkQueue: typeof WorkQueue;
}

type Answer = 'done' | 'busy' | 'timeout' | 'canceled' | 'draining';

/** One client: its answer, and the fate of its work. */
class Client {
  readonly index: number;
  readonly #world: World;
  readonly #queue: WorkQueue;
  readonly #place: Place;
  readonly left = new AbortController();
  answer: Answer | undefined;
  begun = false;
  ended = false;
  accepted = false;
  /** Remembered, because an error of the work is an answer like any other. */
  #begunInVain = false;

  constructor(index: number, world: World, queue: WorkQueue, place: Place) {
    this.index = index;
    this.#place = place;
    this.#world = world;
    this.#queue = queue;
  }

  async submit(budget_ms: number, parent: Deadline | undefined): Promise<void> {
    const deadline = Deadline.after('request', budget_ms, { signal: this.left.signal, ...(parent && { parent }) });
    try {
      const accepted_before = this.#queue.accepted_total;
      const answer = this.#queue.submit(this.#place.lane, deadline, () => this.#work(), this.#place.key);
      this.accepted = this.#queue.accepted_total > accepted_before;
      const value = await answer;
      assert(value === this.index, 'a client gets its own result');
      this.#told('done');
    } catch (error) {
      assert(error instanceof RonError && error.code !== 'internal', `client ${this.index}: ${String(error)}`);
      this.#told(error.code as Answer);
    }
  }

  check(): void {
    assert(!this.#begunInVain, 'work began for a client that was answered, or twice');
    assert(this.answer !== 'busy' || this.#place.hasRoom !== true, 'a client with room of its own was refused');
    if (this.answer === 'done') assert(this.ended, 'done without work');
    if (this.answer === 'busy' || this.answer === 'draining') assert(!this.begun, 'work that has begun was dropped');
  }

  toString(): string {
    return `${this.answer} ${this.begun} ${this.ended} ${this.left.signal.aborted}`;
  }

  #told(answer: Answer): void {
    this.answer = answer;
    this.check();
  }

  async #work(): Promise<number> {
    this.#begunInVain ||= this.answer !== undefined || this.begun;
    this.begun = true;
    await this.#world.io('work');
    this.ended = true;
    return this.index;
  }
}

/** Where a client submits. */
export interface Place {
  readonly lane: string;
  readonly key?: string;
  /** There is always room for this client: reserved, or a fair share of its key. */
  readonly hasRoom?: boolean;
}

export interface Shape {
  readonly clients: number;
  readonly workers: number;
  readonly capacity: number;
  readonly lanes?: readonly LaneDeclaration[];
  /** Of each client. Default: all in the lane `get`. */
  readonly places?: readonly Place[];
  /** Whether one deadline, which ends before the clients' own, is the parent of all of theirs. Default false. */
  readonly hasParent?: boolean;
  /** Other events, each once and at any time. */
  readonly events: readonly ('close' | 'abort queued' | 'client leaves' | 'worker dies')[];
}

/** Every client is answered once, and every worker ends once the queue is closed. */
export function answersOnce({ WorkQueue }: WorkQueueModule, shape: Shape): Build {
  return (world) => {
    const queue = new WorkQueue('work', { capacity: shape.capacity, lanes: shape.lanes ?? ['get'] });
    const placeOf = (index: number): Place => shape.places?.[index] ?? { lane: 'get' };
    const clients = Array.from(
      { length: shape.clients },
      (_, index) => new Client(index, world, queue, placeOf(index)),
    );
    const dying = new AbortController();
    const staying = new AbortController();
    const parent = shape.hasParent === true ? Deadline.after('session', 50) : undefined;
    const order: number[] = [];
    let live = 0;
    for (const client of clients) {
      world.task(`client ${client.index}`, () => {
        order.push(client.index);
        return client.submit(100 + client.index, parent);
      });
    }
    for (let index = 0; index < shape.workers; index += 1) {
      const { signal } = index === 0 ? dying : staying;
      world.task(`worker ${index}`, async () => {
        live += 1;
        await serve(queue, signal);
        live -= 1;
      });
    }
    for (const event of shape.events) {
      world.task(event, () => {
        if (event === 'close') queue.close();
        if (event === 'abort queued') queue.abortQueued(new RonError('draining', 'stopping'));
        if (event === 'client leaves') clients[0]!.left.abort(new RonError('canceled', 'left'));
        if (event === 'worker dies') dying.abort(new RonError('canceled', 'killed'));
        return Promise.resolve();
      });
    }
    return {
      // The waiting jobs and their workers follow from the order of arrival, how many wait, and who was answered.
      state: () => [order, clients.map(String), queue.depth, queue.running, queue.idle, totals(queue), live].join('|'),
      invariant() {
        assert(queue.depth <= shape.capacity, 'more jobs wait than the capacity');
        assert(queue.depth === 0 || queue.idle === 0, 'a job waits, and so does a worker');
      },
      final() {
        const count = (answer: Answer): number => clients.filter((client) => client.answer === answer).length;
        for (const client of clients) client.check();
        // [storage I-5] [index I-5] [edge I-5] [interop I-5]
        assert(clients.every(({ answer }) => answer !== undefined) && live === 0, 'all are answered, all have ended');
        assert(queue.depth === 0 && queue.running === 0, 'nothing is left');
        assert(count('busy') === queue.busy_total, 'busy answers are counted once');
        assert(count('timeout') === queue.timeout_total, 'timeouts are counted once');
        const timeouts = clients.filter(({ answer, accepted }) => answer === 'timeout' && accepted).length;
        assert(
          queue.canceled_total + timeouts + queue.shed_total + count('done') === queue.accepted_total,
          'each accepted job has one end',
        );
      },
    };
  };
}

function totals(queue: WorkQueue): number[] {
  return [queue.accepted_total, queue.busy_total, queue.shed_total, queue.timeout_total, queue.canceled_total];
}

async function serve(queue: WorkQueue, signal: AbortSignal): Promise<void> {
  try {
    for (let job = await queue.take(signal); job !== undefined; job = await queue.take(signal)) await job.run(signal);
    assert(queue.depth === 0, 'a worker ended although jobs wait');
  } catch (error) {
    assert(signal.aborted && error === signal.reason, `a worker ends by itself: ${String(error)}`);
  }
}
