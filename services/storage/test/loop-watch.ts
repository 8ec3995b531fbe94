/** Asks a storage process that runs `loop-watch-main.ts` how long the turns of its event loop took. */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { ServiceProcess } from '@ron/testkit/service';

const REPORT_MS_MAX = 10_000;

export const LOOP_WATCH_MAIN = fileURLToPath(new URL('./loop-watch-main.ts', import.meta.url));

export interface LoopReport {
  /** Times that the watch looked. */
  readonly ticks: number;
  /** The longest turns, the longest first, without waits for a core and without garbage collection. */
  readonly turns_ms: readonly number[];
  /** Time that the garbage collector took in all. */
  readonly collected_ms: number;
  /** The longest delay by the wall clock, with everything in it. */
  readonly wall_max_ms: number;
}

export function beginLoopWatch({ child }: ServiceProcess): void {
  child.send('begin');
}

export async function loopReport({ child }: ServiceProcess): Promise<LoopReport> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(REPORT_MS_MAX) });
  child.send('report');
  const [report] = await answered;
  return report;
}
