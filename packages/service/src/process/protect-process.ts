/**
 * Keeps the memory of this process from other processes of the same user.
 *
 * Contract: the process leaves no core dump, and only root can read its memory, its initial environment or attach a debugger
 * (Linux: `PR_SET_DUMPABLE` 0 and `RLIMIT_CORE` 0). The files of `/proc/PID` then belong to root; the process itself can
 * still read its own. Returns undefined, or the reason why the protection is not in force: another system, another C library.
 * Never throws. The first call takes about 10 ms, because it loads the library for native calls.
 */
import { createRequire } from 'node:module';

const PR_GET_DUMPABLE = 3;
const PR_SET_DUMPABLE = 4;
const RLIMIT_CORE = 4;

export function protectProcess(): string | undefined {
  if (process.platform !== 'linux') return `not supported on ${process.platform}`;
  try {
    // oxlint-disable-next-line ron/no-blocking-calls -- once, after the ready line; the calls themselves take microseconds
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const libc = koffi.load(null);
    const prctl = libc.func(
      'int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)',
    );
    const setrlimit = libc.func('int setrlimit(int resource, const void *limit)');
    // Both the soft and the hard limit are 0.
    setrlimit(RLIMIT_CORE, Buffer.alloc(16));
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) === 0 ? undefined : 'the system refused it';
  } catch {
    return 'native calls are not available';
  }
}
