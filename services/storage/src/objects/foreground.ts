/**
 * Measures how long clients wait for the disks, so that background work can yield to them.
 *
 * Contract: four 95th percentiles over the samples since the last call, undefined with too few samples: the time
 * to the first byte of a GET, the wait for each further batch of its body, the time from the end of the body of a PUT to its
 * acknowledgement, and the wait for each `PUT_BATCH_BYTES` of a streamed PUT. Time in which a slow client reads or sends does
 * not count. Requests add samples and the pacing task takes them, so the windows are in a cell: a sample is added before or
 * after all four are taken. Bound: `SAMPLES_MAX` samples of each.
 */
import type { ByteSource } from '@ron/ingress';
import { sched, type Cell } from '@ron/kernel';

const PUT_BATCH_BYTES = 512 * 1024;
const SAMPLES_MAX = 1024;
/** With fewer samples the percentile is meaningless. */
const SAMPLES_MIN = 20;

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

  /** Measures a response to a GET whose handler took `opened_ms`. The first batch completes the time to the first byte. */
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

  /** For one streamed PUT: called with the length of each piece and the time of writing it. */
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

/** The 95th percentile of recent latencies of one kind of request. Overflow: the oldest samples are overwritten. */
export class Latency {
  readonly #samples_ms = new Float64Array(SAMPLES_MAX);
  #count = 0;

  add(took_ms: number): void {
    this.#samples_ms[this.#count++ % SAMPLES_MAX] = took_ms;
  }

  /** The 95th percentile since the last call; undefined with too few samples. */
  takeP95_ms(): number | undefined {
    const samples = this.#samples_ms.slice(0, Math.min(this.#count, SAMPLES_MAX)).toSorted();
    if (samples.length < SAMPLES_MIN) return undefined;
    this.#count = 0;
    return samples[Math.floor(samples.length * 0.95)];
  }
}
