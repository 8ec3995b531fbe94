/** Resources of a process, as Linux reports them in `/proc`. */
import { readdirSync, readFileSync } from 'node:fs';

const KIB = 1024;
const MS_PER_TICK = 10;

/** Resident memory. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)![1]) * KIB;
}

/** Processor time used so far; unlike the clock, it excludes other processes. */
export function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ');
  return (Number(fields[13]) + Number(fields[14])) * MS_PER_TICK;
}

/** Number of open file descriptors. */
export const descriptorsOf = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;
