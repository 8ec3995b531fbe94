/**
 * The metrics of one process, and their Prometheus text.
 *
 * Contract: nothing is formatted before a scrape. A metric exists once: declaring it again with the same shape gives
 * the same object, with another shape is an error.
 * Bound: at most `SERIES_MAX` series a metric. Overflow: values outside the declared sets become "other".
 * A source that throws is left out of the scrape and counted.
 */
import { createRequire } from 'node:module';
import type { Metric, Registry as PromRegistry } from 'prom-client';
import { assert } from '@ron/kernel';
import { Counter, Gauge, Histogram, LABEL, OTHER, SERIES_MAX, type LabelSets, type Sample } from './series.ts';

/** Only this file of the library: the whole is a third of the import time of the kernel. */
const Registry = createRequire(import.meta.url)('prom-client/lib/registry.js') as typeof PromRegistry;

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

type Kind = 'counter' | 'gauge' | 'histogram';

/** The documentation of a metric. */
export interface MetricAbout {
  readonly name: string;
  readonly kind: Kind;
  readonly help: string;
  readonly labels: readonly string[];
}

export class Metrics {
  readonly service: string;
  readonly #registry = new Registry();
  /** Name -> the declaration, and its shape in one string for comparison. */
  readonly #declared = new Map<string, { shape: string; metric: unknown; about: MetricAbout }>();
  readonly #collectErrors: Counter<never>;

  constructor(service: string) {
    this.service = service;
    this.#collectErrors = this.counter('metrics_collect_errors_total', 'Sources that threw while a scrape read them.');
  }

  counter<N extends string = never>(
    name: string,
    help: string,
    labels?: Readonly<Record<N, readonly string[]>>,
  ): Counter<N> {
    const sets: LabelSets = labels ?? {};
    const shape = `counter ${JSON.stringify(sets)}`;
    const known = this.#known(name, shape);
    if (known instanceof Counter) return known;
    const counter = new Counter<N>(name, sets);
    const about = { name, kind: 'counter', help, labels: Object.keys(sets) } as const;
    this.#declare(about, shape, counter, () => counter.samples());
    return counter;
  }

  gauge<N extends string = never>(
    name: string,
    help: string,
    labels?: Readonly<Record<N, readonly string[]>>,
  ): Gauge<N> {
    const sets: LabelSets = labels ?? {};
    const shape = `gauge ${JSON.stringify(sets)}`;
    const known = this.#known(name, shape);
    if (known instanceof Gauge) return known;
    const gauge = new Gauge<N>(name, sets);
    const about = { name, kind: 'gauge', help, labels: Object.keys(sets) } as const;
    this.#declare(about, shape, gauge, () => gauge.samples());
    return gauge;
  }

  /** Buckets are upper bounds in the unit of the name, ascending; +Inf is implied. */
  histogram<N extends string = never>(
    name: string,
    help: string,
    buckets: readonly number[],
    labels?: Readonly<Record<N, readonly string[]>>,
  ): Histogram<N> {
    const sets: LabelSets = labels ?? {};
    const shape = `histogram ${JSON.stringify([buckets, sets])}`;
    const known = this.#known(name, shape);
    if (known instanceof Histogram) return known;
    const histogram = new Histogram<N>(name, buckets, sets);
    const about = { name, kind: 'histogram', help, labels: Object.keys(sets) } as const;
    this.#declare(about, shape, histogram, () => histogram.samples(name));
    return histogram;
  }

  /** A gauge that is read from its owner at scrape, so that the owner keeps nothing but its own number. */
  gaugeFrom(name: string, help: string, label_names: readonly string[], sample: () => Iterable<Sample>): void {
    this.#sampled('gauge', name, help, label_names, sample);
  }

  /** As `gaugeFrom`, for totals that only grow. */
  counterFrom(name: string, help: string, label_names: readonly string[], sample: () => Iterable<Sample>): void {
    this.#sampled('counter', name, help, label_names, sample);
  }

  /** Everything, in the Prometheus text format. A source that throws is left out and counted, the rest is served. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Names in force, for tests that hold a service to its list. */
  names(): string[] {
    return [...this.#declared.keys()];
  }

  /** The declared metrics, in the order of declaration. */
  about(): MetricAbout[] {
    return [...this.#declared.values()].map(({ about }) => about);
  }

  #sampled(
    kind: Kind,
    name: string,
    help: string,
    label_names: readonly string[],
    sample: () => Iterable<Sample>,
  ): void {
    assert(!this.#declared.has(name), `metric ${name} is declared twice`);
    for (const label of label_names) assert(LABEL.test(label), `metric ${name}: bad label name ${label}`);
    const about = { name, kind, help, labels: label_names };
    this.#declare(about, `${kind} from a source`, sample, () => merged(label_names, sample()));
  }

  #known(name: string, shape: string): unknown {
    const known = this.#declared.get(name);
    assert(known === undefined || known.shape === shape, `metric ${name} is declared twice with different shapes`);
    return known?.metric;
  }

  #declare(about: MetricAbout, shape: string, metric: unknown, samples: () => Iterable<Sample>): void {
    const { kind, name, help } = about;
    assert(NAME.test(name), `bad metric name ${name}`);
    this.#declared.set(name, { shape, metric, about });
    // prom-client only formats: it reads the values at scrape and never sees an increment.
    const described = { name, help, type: kind, aggregator: 'sum' };
    const source: object = {
      ...described,
      get: () => ({ ...described, values: this.#collect(samples) }),
      reset: () => {},
    };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the registry calls name, get and reset only
    this.#registry.registerMetric(source as Metric);
  }

  #collect(samples: () => Iterable<Sample>): Sample[] {
    try {
      return [...samples()];
    } catch {
      this.#collectErrors.inc();
      return [];
    }
  }
}

/**
 * Samples with the declared labels only, one per label combination (duplicates would make the text invalid; they are
 * summed), and no more than `SERIES_MAX`: the rest is summed under "other".
 */
function merged(label_names: readonly string[], samples: Iterable<Sample>): Sample[] {
  const byLabels = new Map<string, { labels: Record<string, string>; value: number }>();
  for (const sample of samples) {
    let values = label_names.map((label) => sample.labels[label] ?? OTHER);
    let key = JSON.stringify(values);
    if (!byLabels.has(key) && byLabels.size >= SERIES_MAX - 1) {
      values = label_names.map(() => OTHER);
      key = JSON.stringify(values);
    }
    const known = byLabels.get(key);
    if (known !== undefined) known.value += sample.value;
    else {
      const labels = Object.fromEntries(label_names.map((label, place) => [label, values[place]!]));
      byLabels.set(key, { labels, value: sample.value });
    }
  }
  return [...byLabels.values()];
}
