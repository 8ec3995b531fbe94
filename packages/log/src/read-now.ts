/**
 * Reads what the operating system has in memory, without waiting for a disk.
 *
 * A read by Node's thread pool costs 40 to 80 us, nearly all of it for waking a thread, when the bytes lie in the page
 * cache and reading them takes one or two. Linux can tell which it is: `preadv2` with RWF_NOWAIT reads what is there or
 * says that it would have to wait.
 *
 * Promise: exactly what a read would have given, or undefined: then ask the disk. Never waits, never throws. Where there is
 * no such call (another system, another C library) the answer is always undefined.
 * Bound: `SHARED` is memory for what is looked at and left: what the next read puts there takes its place.
 */
import { createRequire } from 'node:module';

type Preadv2 = (fd: number, vector: Buffer, count: number, offset: number, flags: number) => number;

const RWF_NOWAIT = 8;
/** One `struct iovec`: address and length. Calls do not overlap, so one is enough. */
const vector = Buffer.alloc(16);
/** Fresh memory for each of many small reads costs more than the reads: most of it the collector's work. */
export const SHARED = Buffer.allocUnsafeSlow(128 * 1024);
let shared_address: bigint | undefined;

interface System {
  readonly preadv2: Preadv2;
  address(bytes: Uint8Array): bigint;
}

let system: System | undefined;
let isLoaded = false;

function load(): System | undefined {
  isLoaded = true;
  if (process.platform !== 'linux' || process.arch === 'ia32' || process.arch === 'arm') return undefined;
  try {
    // oxlint-disable-next-line ron/no-blocking-calls -- RWF_NOWAIT never waits for the disk
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const libc = koffi.load('libc.so.6');
    const preadv2 = libc.func(
      'int64_t preadv2(int fd, const void *iov, int count, int64_t offset, int flags)',
    ) as Preadv2;
    return { preadv2, address: (bytes) => koffi.address(bytes) };
  } catch {
    return undefined;
  }
}

/** The number of bytes read, fewer than `length` only at the end of the file; undefined when it would have to wait. */
export function readNow(fd: number, into: Uint8Array, length: number, position: number): number | undefined {
  if (!isLoaded) system = load();
  if (system === undefined) return undefined;
  const address = into === SHARED ? (shared_address ??= system.address(SHARED)) : system.address(into);
  let filled = 0;
  while (filled < length) {
    vector.writeBigUInt64LE(address + BigInt(filled), 0);
    vector.writeBigUInt64LE(BigInt(length - filled), 8);
    const count = system.preadv2(fd, vector, 1, position + filled, RWF_NOWAIT);
    if (count < 0) return undefined;
    if (count === 0) break;
    filled += count;
  }
  return filled;
}
