/** For parsers of what strangers send: sixteen times the input may cost sixteen times as much, not the square of it. */
import assert from 'node:assert/strict';

/** By the CPU time of this thread, so that what else the machine does counts for nothing. */
export function assertLinearTime(work: (length: number) => void): void {
  work(20_000);
  let fastest = Infinity;
  for (let attempt = 0; attempt < 3 && fastest >= 6 * 16; attempt += 1) fastest = Math.min(fastest, factor(work));
  assert.ok(fastest < 6 * 16, `sixteen times the input took ${fastest} times as long`);
}

function factor(work: (length: number) => void): number {
  const short_us = bestCpu_us(() => work(20_000));
  return bestCpu_us(() => work(320_000)) / Math.max(short_us, 100);
}

function bestCpu_us(work: () => void): number {
  let best_us = Infinity;
  for (let run = 0; run < 3; run += 1) {
    const before = process.threadCpuUsage();
    work();
    const { user, system } = process.threadCpuUsage(before);
    best_us = Math.min(best_us, user + system);
  }
  return best_us;
}
