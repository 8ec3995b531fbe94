/**
 * Exit codes, which state why a process ended. The numbers follow `sysexits.h` where it defines one. `docs/errors.md` is
 * generated from this table.
 */
import { standardErrorSink } from '@ron/telemetry';

export const NODE_MAJOR_MIN = 26;

export const EXIT_CODES = {
  ok: { code: 0, when: 'stopped by SIGTERM or SIGINT, after the drain' },
  node: { code: 1, when: `Node is older than ${NODE_MAJOR_MIN}` },
  start: { code: 69, when: 'the service failed to start: port taken, directory not writable, dependency missing' },
  fatal: { code: 70, when: 'a critical task failed permanently, an error was not handled, or the drain did not end' },
  config: { code: 78, when: 'the configuration was refused; nothing was started' },
  interrupted: { code: 130, when: 'a second signal, SIGINT, aborted the drain' },
  terminated: { code: 143, when: 'a second signal, SIGTERM, aborted the drain' },
} as const;

export type Exit = keyof typeof EXIT_CODES;

/** Ends the process. Standard error is flushed first, so no line is lost. */
export function exitWith(exit: Exit, message = ''): never {
  if (message !== '') standardErrorSink().write(message);
  process.exit(EXIT_CODES[exit].code);
}
