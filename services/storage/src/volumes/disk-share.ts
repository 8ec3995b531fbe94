/**
 * Limits the file calls of each disk.
 *
 * All file calls share the threads of the process. With several directories each gets as many threads as it may have calls under
 * way, and the rest of the process gets some of its own, so that a disk that hangs does not block the others. A single
 * directory gets the default thread pool of Node: more threads would only make it slower.
 */
import { DiskGate, gatedFileSystem, realFileSystem, type FileSystem } from '@ron/log';

const CALLS_MAX = 8;
const LATE_MS = 5000;
/** Probes of a directory from outside. */
const PROBES_MAX = 4;
const THREADS_SPARE = 4;
/** The limit of Node. */
const THREADS_MAX = 1024;
/** A single disk has no alternative, so it may be slow. */
const ALONE = { calls_max: 1024, late_ms: 30_000 };

/** Must be called before the first file call of the process. A number set by the operator is kept. */
export function sizeThreadPool(directories: number): void {
  if (directories < 2) return;
  process.env['UV_THREADPOOL_SIZE'] ??= String(
    Math.min(THREADS_MAX, directories * (CALLS_MAX + PROBES_MAX) + THREADS_SPARE),
  );
}

/** The file system of one directory among several. */
export function fileSystemOf(directories: number, fs: FileSystem = realFileSystem): FileSystem {
  return gatedFileSystem(fs, new DiskGate(directories < 2 ? ALONE : { calls_max: CALLS_MAX, late_ms: LATE_MS }));
}
