import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { collectProcessMetrics } from './process-metrics.ts';
import { SERIES_MAX } from './series.ts';
import { Metrics } from './metrics.ts';

interface ParsedFamily {
  help: string;
  type: string;
  samples: { name: string; labels: Record<string, string>; value: number }[];
}

const ESCAPES: Record<string, string> = { '\\': '\\', n: '\n', '"': '"' };

function unescaped(text: string, allowed: string): string {
  return text.replace(/\\(.?)/gs, (_whole, next: string) => {
    assert.ok(next !== '' && allowed.includes(next), `bad escape \\${next}`);
    return ESCAPES[next]!;
  });
}

/** Reads the text format as strictly as its description: anything not in the grammar throws. */
function parse(text: string): Map<string, ParsedFamily> {
  assert.ok(text.endsWith('\n'), 'the last line ends with a line feed');
  const families = new Map<string, ParsedFamily>();
  const seen = new Set<string>();
  let current: ParsedFamily | undefined;
  let currentName = '';
  for (const line of text.slice(0, -1).split('\n')) {
    if (line === '') continue;
    const meta = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)$/s.exec(line);
    if (meta !== null) {
      const [, what, name = '', rest = ''] = meta;
      if (what === 'HELP') {
        assert.ok(!families.has(name), `HELP of ${name} once`);
        current = { help: unescaped(rest, '\\n'), type: '', samples: [] };
        families.set(name, current);
        currentName = name;
      } else {
        assert.equal(name, currentName, 'TYPE follows its HELP');
        assert.equal(current!.type, '', `TYPE of ${name} once`);
        assert.match(rest, /^(counter|gauge|histogram)$/);
        current!.type = rest;
      }
      continue;
    }
    const sample = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)$/s.exec(line);
    assert.ok(sample !== null, `not a line of the format: ${line}`);
    const [, name = '', labelText = '', valueText] = sample;
    const labels: Record<string, string> = {};
    let rest = labelText;
    while (rest !== '') {
      const label = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"(?:,|$)/.exec(rest);
      assert.ok(label !== null, `bad labels: ${labelText}`);
      assert.ok(!Object.hasOwn(labels, label[1]!), `label ${label[1]} once`);
      labels[label[1]!] = unescaped(label[2]!, '\\n"');
      rest = rest.slice(label[0].length);
    }
    const bare = current!.type === 'histogram' ? name.replace(/_(bucket|sum|count)$/, '') : name;
    assert.equal(bare, currentName, 'samples stand below their own HELP');
    const identity = name + JSON.stringify(Object.entries(labels));
    assert.ok(!seen.has(identity), `series ${identity} once`);
    seen.add(identity);
    const value = valueText === '+Inf' ? Infinity : valueText === '-Inf' ? -Infinity : Number(valueText);
    current!.samples.push({ name, labels, value });
  }
  return families;
}

test('a counter counts, and declared series are there at zero before the first event', async () => {
  const metrics = new Metrics('storage');
  const busy = metrics.counter('busy_rejections_total', 'Refused.', { endpoint: ['get', 'put'] });
  busy.at('get').inc();
  busy.at({ endpoint: 'get' }).inc(2);
  const plain = metrics.counter('plain_total', 'Plain.');
  plain.inc();
  const families = parse(await metrics.text());
  assert.deepEqual(families.get('busy_rejections_total')!.samples, [
    { name: 'busy_rejections_total', labels: { endpoint: 'get' }, value: 3 },
    { name: 'busy_rejections_total', labels: { endpoint: 'put' }, value: 0 },
  ]);
  assert.equal(families.get('plain_total')!.samples[0]!.value, 1);
  assert.equal(families.get('plain_total')!.type, 'counter');
});

test('label values outside the declared set become "other", however many there are', async () => {
  const metrics = new Metrics('storage');
  const counter = metrics.counter('io_timeouts_total', 'Timeouts.', { op: ['read'], lane: ['a', 'b'] });
  for (let index = 0; index < 5000; index++) counter.at(`op-${index}`, `lane-${index}`).inc();
  counter.at('read', '__proto__').inc();
  counter.at({ op: 'read', lane: 'b' }).inc();
  const samples = parse(await metrics.text()).get('io_timeouts_total')!.samples;
  const value = (op: string, lane: string): number | undefined =>
    samples.find((sample) => sample.labels['op'] === op && sample.labels['lane'] === lane)?.value;
  assert.equal(value('other', 'other'), 5000);
  assert.equal(value('read', 'other'), 1);
  assert.equal(value('read', 'b'), 1);
  assert.equal(value('read', 'a'), 0);
  assert.equal(samples.length, 4);
});

test('histogram buckets are cumulative and +Inf equals the count', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof(fc.constantFrom(0.1, 1, 10), fc.double({ noNaN: true, min: -10, max: 100 }))),
      async (values) => {
        const metrics = new Metrics('storage');
        const histogram = metrics.histogram('repair_wait_seconds', 'Waits.', [0.1, 1, 10], { lane: ['x'] });
        for (const value of values) histogram.at('x').observe(value);
        const samples = parse(await metrics.text()).get('repair_wait_seconds')!.samples;
        const bucket = (le: string): number =>
          samples.find((sample) => sample.name.endsWith('_bucket') && sample.labels['le'] === le)!.value;
        for (const bound of [0.1, 1, 10]) {
          assert.equal(bucket(String(bound)), values.filter((value) => value <= bound).length);
        }
        assert.equal(bucket('+Inf'), values.length);
        assert.equal(samples.find((sample) => sample.name === 'repair_wait_seconds_count')!.value, values.length);
        const sum = samples.find((sample) => sample.name === 'repair_wait_seconds_sum')!.value;
        assert.equal(
          sum,
          values.reduce((total, value) => total + value, 0),
        );
      },
    ),
    { numRuns: 50 },
  );
});

test('any label value and help text survives the escapes of the text format', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), async (value, help) => {
      const metrics = new Metrics('storage');
      metrics
        .counter('odd_total', help, { label: [value] })
        .at(value)
        .inc();
      const family = parse(await metrics.text()).get('odd_total')!;
      assert.equal(family.help, help);
      assert.equal(family.samples.find((sample) => sample.value === 1)!.labels['label'], value);
    }),
  );
});

test('sampled metrics are read at scrape; duplicates are summed and floods are folded', async () => {
  const metrics = new Metrics('storage');
  let depth = 3;
  metrics.gaugeFrom('queue_depth', 'Depth.', ['queue'], () => [
    { labels: { queue: 'work' }, value: depth },
    { labels: { queue: 'repair' }, value: 1 },
    { labels: { queue: 'work' }, value: 10 },
  ]);
  metrics.counterFrom('flood_total', 'Flood.', ['peer'], () =>
    Array.from({ length: 3 * SERIES_MAX }, (_, index) => ({ labels: { peer: `p${index}` }, value: 1 })),
  );
  depth = 5;
  const families = parse(await metrics.text());
  assert.deepEqual(
    families.get('queue_depth')!.samples.map((sample) => [sample.labels['queue'], sample.value]),
    [
      ['work', 15],
      ['repair', 1],
    ],
  );
  const flood = families.get('flood_total')!.samples;
  assert.equal(flood.length, SERIES_MAX);
  assert.equal(
    flood.reduce((total, sample) => total + sample.value, 0),
    3 * SERIES_MAX,
  );
});

test('a source that throws is left out and counted; the scrape still answers', async () => {
  const metrics = new Metrics('storage');
  metrics.gaugeFrom('broken', 'Broken.', [], () => {
    throw new Error('gone');
  });
  metrics.counter('fine_total', 'Fine.').inc();
  parse(await metrics.text());
  const families = parse(await metrics.text());
  assert.deepEqual(families.get('broken')!.samples, []);
  assert.equal(families.get('fine_total')!.samples[0]!.value, 1);
  assert.ok(families.get('metrics_collect_errors_total')!.samples[0]!.value >= 1);
});

test('a name exists once: the same shape gives the same metric, another shape is refused', () => {
  const metrics = new Metrics('storage');
  const first = metrics.counter('rejected_total', 'Refused.', { reason: ['busy'] });
  assert.equal(metrics.counter('rejected_total', 'Refused.', { reason: ['busy'] }), first);
  assert.throws(() => metrics.counter('rejected_total', 'Refused.', { reason: ['other_reason'] }), /different shapes/);
  assert.throws(() => metrics.gauge('rejected_total', 'Refused.', { reason: ['busy'] }), /different shapes/);
});

test('misuse is refused where it happens', () => {
  const metrics = new Metrics('storage');
  const labelled = metrics.counter('a_total', 'A.', { op: ['read'] });
  const plain = metrics.counter('b_total', 'B.');
  const histogram = metrics.histogram('c_seconds', 'C.', [1]);
  assert.throws(() => labelled.inc(), /use at/);
  assert.throws(() => plain.inc(-1), RangeError);
  assert.throws(() => plain.inc(Number.NaN), RangeError);
  assert.throws(() => histogram.observe(Number.NaN), RangeError);
  assert.throws(() => histogram.observe(Infinity), RangeError);
  assert.throws(() => metrics.counter('bad-name', 'D.'), /bad metric name/);
  assert.throws(() => metrics.counter('d_total', 'D.', { __secret: ['x'] }), /bad label name/);
  assert.throws(() => metrics.histogram('e_seconds', 'E.', [2, 1]), /ascend/);
  assert.throws(() => metrics.histogram('e_seconds', 'E.', [1], { le: ['1'] }), /le/);
  const many = Array.from({ length: 100 }, (_, index) => `v${index}`);
  assert.throws(() => metrics.counter('f_total', 'F.', { a: many, b: many }), /series/);
});

test('the process reports its CPU, memory, heap and loop delay', async () => {
  const metrics = new Metrics('storage');
  collectProcessMetrics(metrics);
  let families = parse(await metrics.text());
  const value = (name: string): number => families.get(name)!.samples[0]!.value;
  assert.ok(value('process_cpu_seconds_total') > 0);
  assert.ok(value('process_resident_memory_bytes') > 10e6);
  assert.ok(value('nodejs_heap_size_used_bytes') > 1e6);
  // A loop that stalls for 120 ms again and again must show as delay.
  for (const ends_ms = performance.now() + 10_000; performance.now() < ends_ms;) {
    const stalled_ms = performance.now() + 120;
    while (performance.now() < stalled_ms);
    await new Promise((resolve) => setTimeout(resolve, 5));
    families = parse(await metrics.text());
    if (value('nodejs_eventloop_lag_max_seconds') > 0.05) break;
  }
  assert.ok(value('nodejs_eventloop_lag_max_seconds') > 0.05);
  assert.ok(value('nodejs_eventloop_lag_max_seconds') < 60, 'seconds, not nanoseconds');
  assert.deepEqual(families.get('ron_service_info')!.samples[0]!.labels, {
    service: 'storage',
    node_version: process.version,
  });
});
