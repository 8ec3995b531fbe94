/**
 * Frees the disk space of the beginning of a file, which Node has no call for: `fallocate` with FALLOC_FL_PUNCH_HOLE.
 *
 * Contract: afterwards the bytes read as zeros; the size and all other bytes are unchanged. Runs in a thread. Rejects with
 * `not_ready` on a system, C library or file system without that call.
 */
import { createRequire } from 'node:module';
import { RonError } from '@ron/kernel';

const PUNCH_HOLE = 0x02;
const KEEP_SIZE = 0x01;

type Done = (error: Error | null, result: number) => void;
interface Fallocate {
  async(fd: number, mode: number, offset: number, length: number, done: Done): void;
}

function load(): Fallocate | undefined {
  if (process.platform !== 'linux' || process.arch === 'ia32' || process.arch === 'arm') return undefined;
  try {
    // oxlint-disable-next-line ron/no-blocking-calls -- only the asynchronous call is used
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const signature = 'int fallocate(int fd, int mode, int64_t offset, int64_t length)';
    return koffi.load('libc.so.6').func(signature) as Fallocate;
  } catch {
    return undefined;
  }
}

/** Frees the first `bytes` of an open file. */
export async function discardStart(fd: number, bytes: number): Promise<void> {
  const fallocate = load();
  const result =
    fallocate === undefined
      ? -1
      : await new Promise<number>((resolve, reject) => {
          fallocate.async(fd, PUNCH_HOLE | KEEP_SIZE, 0, bytes, (error, code) =>
            error === null ? resolve(code) : reject(error),
          );
        });
  if (result !== 0) throw new RonError('not_ready', 'this file system cannot free a part of a file');
}
