/**
 * How a process says why it ended. The numbers follow `sysexits.h` where it has one; `docs/errors.md` is generated from
 * this table.
 */
import { standardErrorSink } from '@ron/telemetry';

export const NODE_MAJOR_MIN = 26;

export const EXIT_CODES = {
  ok: { code: 0, when: 'stopped by SIGTERM or SIGINT, after the drain' },
  node: { code: 1, when: `Node is older than ${NODE_MAJOR_MIN}` },
  start: { code: 69, when: 'the service could not start: port taken, directory not writable, dependency missing' },
  fatal: { code: 70, when: 'a critical task failed for good, an error was not handled, or the drain never ended' },
  config: { code: 78, when: 'the configuration was refused; nothing was started' },
  interrupted: { code: 130, when: 'a second signal, SIGINT, aborted the drain' },
  terminated: { code: 143, when: 'a second signal, SIGTERM, aborted the drain' },
} as const;

export type Exit = keyof typeof EXIT_CODES;

/** Ends the process. Standard error flushes itself on the way out, so nothing written before is lost. */
export function exitWith(exit: Exit, message = ''): never {
  if (message !== '') standardErrorSink().write(message);
  process.exit(EXIT_CODES[exit].code);
}
