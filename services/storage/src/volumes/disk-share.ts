/**
 * What a disk may take of a process.
 *
 * All file calls share the threads of the process. With several directories each gets as many as it may have calls under
 * way, and the rest of the process some of its own: so a disk that hangs holds up no other one. Alone a directory gets what
 * Node has: more threads would only make it slower.
 */
import { DiskGate, gatedFileSystem, realFileSystem, type FileSystem } from '@ron/log';

const CALLS_MAX = 8;
const LATE_MS = 5000;
/** Looks at a directory from outside come besides. */
const LOOKS_MAX = 4;
const THREADS_SPARE = 4;
/** The most that Node takes. */
const THREADS_MAX = 1024;
/** With nowhere else to go, a slow disk is better than none. */
const ALONE = { calls_max: 1024, late_ms: 30_000 };

/** To be called before the first file call of the process. The operator may have set another number. */
export function sizeThreadPool(directories: number): void {
  if (directories < 2) return;
  process.env['UV_THREADPOOL_SIZE'] ??= String(
    Math.min(THREADS_MAX, directories * (CALLS_MAX + LOOKS_MAX) + THREADS_SPARE),
  );
}

/** The file system of one directory among several. */
export function fileSystemOf(directories: number, fs: FileSystem = realFileSystem): FileSystem {
  return gatedFileSystem(fs, new DiskGate(directories < 2 ? ALONE : { calls_max: CALLS_MAX, late_ms: LATE_MS }));
}
