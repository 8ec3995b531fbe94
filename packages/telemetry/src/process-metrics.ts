/**
 * Metrics of the process: CPU, memory, event-loop delay. The names are those of existing Node dashboards.
 *
 * Contract: read at scrape only; no file is opened (a directory listing of 10 000 descriptors would stall the loop that
 * it claims to measure). Bound: a fixed set of series.
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Metrics } from './metrics.ts';
import { sched } from '@ron/kernel';

const NS_PER_S = 1e9;
const US_PER_S = 1e6;
/** The delay is sampled this often; finer costs idle CPU in every process, coarser misses short stalls. */
const DELAY_RESOLUTION_MS = 20;

interface LoopSample {
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly utilization: number;
}

/** Two reads closer together than this are one scrape and see the same numbers. */
const SAMPLE_AGE_MS_MIN = 500;

/** Delay and use of the event loop since the scrape before: figures since the start would hide every stall in time. */
class LoopMonitor {
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  #utilization = performance.eventLoopUtilization();
  #sample: LoopSample | undefined;
  #sampled_at_ms = 0;

  constructor() {
    this.#delay.enable();
  }

  read(): LoopSample {
    const now_ms = sched.now_ms();
    if (this.#sample !== undefined && now_ms - this.#sampled_at_ms < SAMPLE_AGE_MS_MIN) return this.#sample;
    const utilization = performance.eventLoopUtilization();
    this.#sample = {
      mean: seconds(this.#delay.mean),
      p50: seconds(this.#delay.percentile(50)),
      p99: seconds(this.#delay.percentile(99)),
      max: seconds(this.#delay.max),
      utilization: performance.eventLoopUtilization(utilization, this.#utilization).utilization,
    };
    this.#delay.reset();
    this.#utilization = utilization;
    this.#sampled_at_ms = now_ms;
    return this.#sample;
  }
}

// One per process however many `Metrics` exist: the monitor holds a native timer for the life of the process.
let loop: LoopMonitor | undefined;

/** Adds the metrics of this process to `metrics`. */
export function collectProcessMetrics(metrics: Metrics): void {
  const monitor = (loop ??= new LoopMonitor());
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gaugeFrom(name, help, [], () => [{ labels: {}, value: read() }]);
  const counter = (name: string, help: string, read: () => number): void =>
    metrics.counterFrom(name, help, [], () => [{ labels: {}, value: read() }]);

  counter('process_cpu_user_seconds_total', 'CPU time in user mode.', () => process.cpuUsage().user / US_PER_S);
  counter('process_cpu_system_seconds_total', 'CPU time in the kernel.', () => process.cpuUsage().system / US_PER_S);
  counter('process_cpu_seconds_total', 'CPU time, user and system.', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / US_PER_S;
  });
  gauge('process_resident_memory_bytes', 'Memory that is in RAM.', () => process.memoryUsage.rss());
  gauge('process_start_time_seconds', 'Unix time of the start.', () => performance.timeOrigin / 1000);
  gauge('nodejs_heap_size_total_bytes', 'Size of the JavaScript heap.', () => process.memoryUsage().heapTotal);
  gauge('nodejs_heap_size_used_bytes', 'Used part of the JavaScript heap.', () => process.memoryUsage().heapUsed);
  gauge(
    'nodejs_external_memory_bytes',
    'Memory outside the heap, buffers included.',
    () => process.memoryUsage().external,
  );
  gauge('nodejs_active_resources', 'Open sockets, timers and requests.', () => process.getActiveResourcesInfo().length);
  gauge(
    'nodejs_eventloop_utilization',
    'Busy share of the loop since the last scrape.',
    () => monitor.read().utilization,
  );
  gauge('nodejs_eventloop_lag_mean_seconds', 'Mean loop delay since the last scrape.', () => monitor.read().mean);
  gauge('nodejs_eventloop_lag_p50_seconds', 'Median loop delay since the last scrape.', () => monitor.read().p50);
  gauge('nodejs_eventloop_lag_p99_seconds', 'p99 loop delay since the last scrape.', () => monitor.read().p99);
  gauge('nodejs_eventloop_lag_max_seconds', 'Longest loop delay since the last scrape.', () => monitor.read().max);
  metrics.gaugeFrom(
    'ron_service_info',
    'Always 1; the labels name the service and its Node version.',
    ['service', 'node_version'],
    () => [{ labels: { service: metrics.service, node_version: process.version }, value: 1 }],
  );
}

/** The monitor counts from tick to tick, so its own resolution is not delay. Before the first tick it says NaN. */
function seconds(delay_ns: number): number {
  return Number.isFinite(delay_ns) ? Math.max(0, delay_ns / NS_PER_S - DELAY_RESOLUTION_MS / 1000) : 0;
}
