/** Clocks of the benchmarks. */

/** Monotonic, and the same in all processes of the machine. */
export const now_ms = (): number => Number(process.hrtime.bigint()) / 1e6;

/**
 * CPU time of this thread. Linux brings the time of a running thread up to date only at a tick of the scheduler (4 ms) and
 * when the time of the whole process is read.
 */
export function threadCpu_us(): number {
  process.cpuUsage();
  const { user, system } = process.threadCpuUsage();
  return user + system;
}
