/**
 * The numbers behind a metric: counters, gauges and histograms with bounded labels.
 *
 * Contract: `inc`, `set` and `observe` touch a number and nothing else.
 * Bound: label values are declared sets, so a metric has a fixed number of series (at most `SERIES_MAX`).
 * Overflow: a value outside the declared set is counted under "other", never under its own name.
 */
import { assert } from '@ron/kernel';

/** Label name -> the values it may take. `other` need not be listed: it is always there. */
export type LabelSets = Readonly<Record<string, readonly string[]>>;

/** One value per label name. */
export type LabelValues<N extends string> = Readonly<Record<N, string>>;

/** One measured value of `gaugeFrom` or `counterFrom`. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** No metric may have more series than this; it bounds the size of a scrape. */
export const SERIES_MAX = 1024;

export const OTHER = 'other';

export const LABEL = /^(?!__)[a-zA-Z_][a-zA-Z0-9_]*$/;

export class CounterSeries {
  /** Read it in tests; write it through `inc`. */
  value = 0;
  inc(count = 1): void {
    // The negated form also catches NaN, which would make the total NaN permanently.
    if (!(count >= 0)) throw new RangeError(`a counter cannot be increased by ${count}`);
    this.value += count;
  }
}

export class GaugeSeries {
  value = 0;
  set(value: number): void {
    this.value = value;
  }
  inc(count = 1): void {
    this.value += count;
  }
  dec(count = 1): void {
    this.value -= count;
  }
}

export class HistogramSeries {
  /** Upper bounds, ascending, without +Inf. */
  readonly #bounds: Float64Array;
  /** One count per bound and one for everything above the last; not cumulative, that is done at scrape. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(bounds: Float64Array) {
    this.#bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    // False for NaN and the infinities: one of them in `sum` could never be taken out again.
    if (value - value !== 0) throw new RangeError(`a histogram cannot observe ${value}`);
    const bounds = this.#bounds;
    let index = 0;
    while (index < bounds.length && value > bounds[index]!) index++;
    this.counts[index]! += 1;
    this.sum += value;
  }

  get count(): number {
    return this.counts.reduce((total, count) => total + count, 0);
  }
}

/**
 * The series of one metric, laid out as a flat array: with labels `a` (3 values) and `b` (2 values) the series of
 * (a_i, b_j) is at i * 3 + j, where each label has one more place, the last, for "other".
 */
class Family<S> {
  readonly label_names: readonly string[];
  readonly #places: readonly ReadonlyMap<string, number>[];
  readonly #names: readonly (readonly string[])[];
  readonly #series: (S | undefined)[];
  readonly #make: () => S;

  constructor(name: string, labels: LabelSets, make: () => S) {
    this.#make = make;
    this.label_names = Object.keys(labels);
    this.#names = this.label_names.map((label) => {
      assert(LABEL.test(label), `metric ${name}: bad label name ${label}`);
      return [...new Set(labels[label]!.filter((value) => value !== OTHER)), OTHER];
    });
    this.#places = this.#names.map((values) => new Map(values.map((value, place) => [value, place])));
    const size = this.#names.reduce((product, values) => product * values.length, 1);
    assert(size <= SERIES_MAX, `metric ${name}: ${size} series, at most ${SERIES_MAX} are allowed`);
    this.#series = Array.from({ length: size }, () => undefined);
    // Declared series exist from the start, at zero: an alert on a rate must not miss the first event.
    for (let index = 0; index < size; index++) {
      if (!this.#valuesAt(index).includes(OTHER) || this.label_names.length === 0) this.#series[index] = make();
    }
  }

  at(first: string | Readonly<Record<string, string>>, rest: readonly string[]): S {
    let index = 0;
    for (let label = 0; label < this.#places.length; label++) {
      const value =
        typeof first === 'string' ? (label === 0 ? first : rest[label - 1]) : first[this.label_names[label]!];
      const places = this.#places[label]!;
      index = index * places.size + (places.get(value ?? OTHER) ?? places.size - 1);
    }
    return (this.#series[index] ??= this.#make());
  }

  /** The only series of a metric without labels. */
  single(): S {
    assert(this.label_names.length === 0, `this metric has the labels ${this.label_names.join(', ')}: use at()`);
    return this.at('', []);
  }

  *entries(): Iterable<[labels: Record<string, string>, series: S]> {
    for (let index = 0; index < this.#series.length; index++) {
      const series = this.#series[index];
      if (series === undefined) continue;
      const values = this.#valuesAt(index);
      yield [Object.fromEntries(this.label_names.map((label, place) => [label, values[place]!])), series];
    }
  }

  #valuesAt(index: number): string[] {
    const values: string[] = [];
    let rest = index;
    for (let label = this.#names.length - 1; label >= 0; label--) {
      const names = this.#names[label]!;
      values.unshift(names[rest % names.length]!);
      rest = Math.floor(rest / names.length);
    }
    return values;
  }
}

export class Counter<N extends string = string> {
  readonly #family: Family<CounterSeries>;
  readonly #single: CounterSeries | undefined;
  constructor(name: string, labels: LabelSets) {
    this.#family = new Family(name, labels, () => new CounterSeries());
    this.#single = this.#family.label_names.length === 0 ? this.#family.single() : undefined;
  }
  /** Counts, on a metric without labels. */
  inc(count = 1): void {
    (this.#single ?? this.#family.single()).inc(count);
  }
  /** The series of these label values, by name or in declared order. Keep it where the values are fixed. */
  at(first: string | LabelValues<N>, ...rest: string[]): CounterSeries {
    return this.#family.at(first, rest);
  }
  get value(): number {
    return this.#family.single().value;
  }
  *samples(): Iterable<Sample> {
    for (const [labels, series] of this.#family.entries()) yield { labels, value: series.value };
  }
}

export class Gauge<N extends string = string> {
  readonly #family: Family<GaugeSeries>;
  readonly #single: GaugeSeries | undefined;
  constructor(name: string, labels: LabelSets) {
    this.#family = new Family(name, labels, () => new GaugeSeries());
    this.#single = this.#family.label_names.length === 0 ? this.#family.single() : undefined;
  }
  set(value: number): void {
    (this.#single ?? this.#family.single()).set(value);
  }
  inc(count = 1): void {
    (this.#single ?? this.#family.single()).inc(count);
  }
  dec(count = 1): void {
    (this.#single ?? this.#family.single()).dec(count);
  }
  at(first: string | LabelValues<N>, ...rest: string[]): GaugeSeries {
    return this.#family.at(first, rest);
  }
  get value(): number {
    return this.#family.single().value;
  }
  *samples(): Iterable<Sample> {
    for (const [labels, series] of this.#family.entries()) yield { labels, value: series.value };
  }
}

export class Histogram<N extends string = string> {
  readonly bounds: Float64Array;
  readonly #family: Family<HistogramSeries>;
  readonly #single: HistogramSeries | undefined;
  constructor(name: string, buckets: readonly number[], labels: LabelSets) {
    const ascending = buckets.every(
      (bound, index) => Number.isFinite(bound) && bound > (buckets[index - 1] ?? -Infinity),
    );
    assert(buckets.length > 0 && ascending, `metric ${name}: buckets must be finite and ascend`);
    assert(!Object.hasOwn(labels, 'le'), `metric ${name}: the label le belongs to the buckets`);
    this.bounds = Float64Array.from(buckets);
    this.#family = new Family(name, labels, () => new HistogramSeries(this.bounds));
    this.#single = this.#family.label_names.length === 0 ? this.#family.single() : undefined;
  }
  observe(value: number): void {
    (this.#single ?? this.#family.single()).observe(value);
  }
  at(first: string | LabelValues<N>, ...rest: string[]): HistogramSeries {
    return this.#family.at(first, rest);
  }
  get count(): number {
    return this.#family.single().count;
  }
  get sum(): number {
    return this.#family.single().sum;
  }
  *samples(name: string): Iterable<Sample & { metricName: string }> {
    for (const [labels, series] of this.#family.entries()) {
      let cumulative = 0;
      for (let index = 0; index <= this.bounds.length; index++) {
        cumulative += series.counts[index]!;
        const le = index === this.bounds.length ? '+Inf' : String(this.bounds[index]!);
        yield { labels: { ...labels, le }, value: cumulative, metricName: `${name}_bucket` };
      }
      yield { labels, value: series.sum, metricName: `${name}_sum` };
      yield { labels, value: cumulative, metricName: `${name}_count` };
    }
  }
}
