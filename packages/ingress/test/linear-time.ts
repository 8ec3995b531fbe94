/** For parsers of untrusted input: sixteen times the input may cost sixteen times as much, not the square of it. */
import assert from 'node:assert/strict';

/** CPU time has a resolution of some milliseconds: this much is needed to compare runs. */
const MEASURED_US = 40_000;
const RUNS_MAX = 100_000;

/** By the CPU time of this thread, so that other load of the machine does not count. */
export function assertLinearTime(work: (length: number) => void): void {
  work(20_000);
  let fastest = Infinity;
  for (let attempt = 0; attempt < 3 && fastest >= 6 * 16; attempt += 1) fastest = Math.min(fastest, factor(work));
  assert.ok(fastest < 6 * 16, `sixteen times the input took ${fastest} times as long`);
}

function factor(work: (length: number) => void): number {
  const short_us = cpu_us(() => work(20_000));
  return cpu_us(() => work(320_000)) / short_us;
}

/** The time of one run, averaged over enough runs to be measurable. */
function cpu_us(work: () => void): number {
  const before = process.threadCpuUsage();
  for (let runs = 1; ; runs += 1) {
    work();
    const { user, system } = process.threadCpuUsage(before);
    if (user + system >= MEASURED_US || runs === RUNS_MAX) return Math.max(user + system, 1) / runs;
  }
}
