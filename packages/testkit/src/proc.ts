/** Resources of a process, as Linux reports them in `/proc`. */
import { readdirSync, readFileSync } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';

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

/** Files that the process has open for writing; pipes and sockets are none. */
export async function filesOpenForWriting(pid: number): Promise<string[]> {
  const open: string[] = [];
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    try {
      const target = await readlink(`/proc/${pid}/fd/${fd}`);
      const flags = Number.parseInt(/flags:\s+(\d+)/.exec(await readFile(`/proc/${pid}/fdinfo/${fd}`, 'utf8'))![1]!, 8);
      const isFile = target.startsWith('/') && !target.startsWith('/dev/');
      if (isFile && (flags & 0o3) !== 0) open.push(target);
    } catch {
      // Closed meanwhile.
    }
  }
  return open;
}

/** The kernel may charge a few blocks of file system metadata to any process. */
const METADATA_BYTES = 16 * KIB;

/** Whether the process has sent data to a disk. */
export async function hasWritten(pid: number): Promise<boolean> {
  const bytes = Number(/^write_bytes: (\d+)$/m.exec(await readFile(`/proc/${pid}/io`, 'utf8'))![1]);
  return bytes > METADATA_BYTES;
}
