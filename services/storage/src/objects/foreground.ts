/**
 * How long clients wait for the disks: the measure by which background work yields.
 *
 * Contract: four figures, each a 95th percentile since it was last taken, undefined when there were too few samples: the time
 * to the first byte of a GET, the wait for each further batch of its body, the time from the end of the body of a PUT to its
 * acknowledgement, and the wait for each `PUT_BATCH_BYTES` of a streamed PUT. Time in which a slow client reads or sends does
 * not count. Requests add samples and the pacing task takes them, so the windows are in a cell: a sample is added before or
 * after all four are taken. Bound: as Latency, four times.
 */
import type { ByteSource } from '@ron/ingress';
import { sched, type Cell } from '@ron/kernel';
import { Latency } from './latency.ts';

const PUT_BATCH_BYTES = 512 * 1024;

export interface IoCounters {
  readonly firstByte: Latency;
  readonly body: Latency;
  readonly put: Latency;
  readonly putBody: Latency;
}

export const newIoCounters = (): IoCounters => ({
  firstByte: new Latency(),
  body: new Latency(),
  put: new Latency(),
  putBody: new Latency(),
});

export class Foreground {
  readonly #counters: Cell<IoCounters>;

  constructor(counters: Cell<IoCounters>) {
    this.#counters = counters;
  }

  takeP95s_ms(): readonly (number | undefined)[] {
    return this.#counters.withSync(({ firstByte, body, put, putBody }) =>
      [firstByte, body, put, putBody].map((latency) => latency.takeP95_ms()),
    );
  }

  /** An answer to a GET whose handler took `opened_ms`. Its first batch completes the time to the first byte. */
  watchRead(source: ByteSource, opened_ms: number): ByteSource {
    if (source.ram !== undefined) {
      this.#add('firstByte', opened_ms);
      return source;
    }
    return { ...source, read: (start, end, signal) => this.#timed(source.read(start, end, signal), opened_ms) };
  }

  /** A PUT was acknowledged, or refused, this long after its last byte. */
  putEnded(took_ms: number): void {
    this.#add('put', took_ms);
  }

  /** For one streamed PUT: called with each piece and the time that writing it took. */
  putWrites(): (bytes: number, took_ms: number) => void {
    let [batch_bytes, batch_ms] = [0, 0];
    return (bytes, took_ms) => {
      batch_bytes += bytes;
      batch_ms += took_ms;
      if (batch_bytes < PUT_BATCH_BYTES) return;
      this.#add('putBody', (batch_ms * PUT_BATCH_BYTES) / batch_bytes);
      [batch_bytes, batch_ms] = [0, 0];
    };
  }

  #add(counter: keyof IoCounters, took_ms: number): void {
    this.#counters.withSync((counters) => counters[counter].add(took_ms));
  }

  async *#timed<T>(batches: AsyncIterable<T>, opened_ms: number): AsyncGenerator<T, void, void> {
    let began_ms = sched.now_ms();
    let isFirst = true;
    for await (const batch of batches) {
      const took_ms = sched.now_ms() - began_ms;
      if (isFirst) this.#add('firstByte', opened_ms + took_ms);
      else this.#add('body', took_ms);
      isFirst = false;
      yield batch;
      began_ms = sched.now_ms();
    }
  }
}
