/**
 * Process entry of storage with a watch over its event loop. The parent sends `begin` and `report` over the channel.
 *
 * A timer of one millisecond notes how long each turn of the loop took, without the time in which the thread was ready
 * to run and waited for a core: the kernel counts that time for each thread (`/proc/thread-self/schedstat`). So a busy
 * machine does not lengthen a turn, and a turn that blocks on a disk is as long as it blocked, which CPU time alone
 * would not show. Pauses of the garbage collector are subtracted.
 * Bound: `TURNS_MAX` turns and as many pauses are kept; beyond that only the longest counts.
 */
import { openSync, readSync } from 'node:fs';
import { constants, monitorEventLoopDelay, performance, PerformanceObserver } from 'node:perf_hooks';
import type { LoopReport } from './loop-watch.ts';

const TICK_MS = 1;
/** Shorter turns are of no interest. */
const NOTED_MS = 2;
const TURNS_MAX = 50_000;

interface Turn {
  readonly begun_ms: number;
  readonly ended_ms: number;
  readonly took_ms: number;
}

const schedstat = openSync('/proc/thread-self/schedstat', 'r');
const text = Buffer.alloc(128);
const turns: Turn[] = [];
const pauses: { begun_ms: number; ended_ms: number }[] = [];
const delay = monitorEventLoopDelay({ resolution: 1 });
let ticks = 0;
let last_ms = performance.now();
let last_waited_ns = waited_ns();

/** How long this thread has waited for a core so far. */
function waited_ns(): number {
  const length = readSync(schedstat, text, 0, text.length, 0);
  return Number(text.toString('latin1', 0, length).split(' ')[1]);
}

function tick(): void {
  const now_ms = performance.now();
  const waited = waited_ns();
  const took_ms = now_ms - last_ms - (waited - last_waited_ns) / 1e6;
  if (took_ms > NOTED_MS && turns.length < TURNS_MAX) turns.push({ begun_ms: last_ms, ended_ms: now_ms, took_ms });
  ticks += 1;
  last_ms = now_ms;
  last_waited_ns = waited;
}

const collector = new PerformanceObserver((list) => notePauses(list.getEntries()));
function notePauses(entries: readonly { startTime: number; duration: number }[]): void {
  for (const { startTime, duration } of entries) {
    if (pauses.length < TURNS_MAX) pauses.push({ begun_ms: startTime, ended_ms: startTime + duration });
  }
}

function withoutPauses(turn: Turn): number {
  const paused = pauses.reduce((sum, { begun_ms, ended_ms }) => {
    const overlap_ms = Math.min(ended_ms, turn.ended_ms) - Math.max(begun_ms, turn.begun_ms);
    return sum + Math.max(0, overlap_ms);
  }, 0);
  return Math.max(0, turn.took_ms - paused);
}

function report(): LoopReport {
  notePauses(collector.takeRecords());
  const longest = turns.map(withoutPauses).toSorted((a, b) => b - a);
  return {
    ticks,
    turns_ms: longest.slice(0, 50),
    collected_ms: pauses.reduce((sum, { begun_ms, ended_ms }) => sum + ended_ms - begun_ms, 0),
    wall_max_ms: delay.max / 1e6,
  };
}

process.on('message', (message) => {
  if (message === 'begin') {
    collector.observe({ entryTypes: ['gc'] });
    delay.enable();
    delay.reset();
    setInterval(tick, TICK_MS).unref();
    last_ms = performance.now();
    last_waited_ns = waited_ns();
  }
  // The observer gets its entries in a later turn.
  if (message === 'report') setTimeout(() => process.send?.(report()), 20);
});
// The channel must not keep a process alive that is asked to stop.
process.channel?.unref();
if (constants.NODE_PERFORMANCE_GC_MAJOR === undefined) throw new Error('this Node does not report garbage collections');

await import('../src/main.ts');
