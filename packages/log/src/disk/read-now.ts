/**
 * Reads from the page cache without waiting for a disk.
 *
 * A read by Node's thread pool costs 40 to 80 us, nearly all of it for waking a thread, even if the bytes are in the page
 * cache and the read itself takes 1 or 2 us. On Linux, `preadv2` with RWF_NOWAIT reads from the page cache or fails if it
 * would have to wait.
 *
 * Contract: the same bytes as a read, or undefined if that would wait. Never waits, never throws. Without that call (another
 * system, another C library) the result is always undefined.
 * Bound: `SHARED` is one buffer for bytes that are not kept; the next read overwrites it.
 */
import { createRequire } from 'node:module';

type Preadv2 = (fd: number, vector: Buffer, count: number, offset: number, flags: number) => number;

const RWF_NOWAIT = 8;
/** One `struct iovec`: address and length. Calls do not overlap, so one is enough. */
const vector = Buffer.alloc(16);
/** Allocating a buffer for each small read would cost more than the read, mostly for garbage collection. */
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

/** The number of bytes read, fewer than `length` only at the end of the file; undefined if the read would have to wait. */
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
