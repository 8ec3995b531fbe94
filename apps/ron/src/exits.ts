/**
 * How the command line says why it ended. Scripts go by these numbers; they follow `sysexits.h` and do not change.
 * `docs/cli.md` holds the same table.
 */
import { ERRORS, isRonError, RonError, type ErrorCode } from '@ron/kernel/core';

export const EXITS = {
  ok: { code: 0, when: 'done' },
  failed: {
    code: 1,
    when: '`ron doctor` or `ron scrub` found something to mend, a task failed, or things are not such that it could be done',
  },
  usage: { code: 64, when: 'unknown command or flag, or an argument that cannot be right' },
  data: { code: 65, when: 'bytes do not have the address they should have; nothing of them was kept' },
  no_input: { code: 66, when: 'the object, the range or the file to read does not exist' },
  unavailable: {
    code: 69,
    when: 'a service does not run, cannot be reached or could not start; the directory is in use',
  },
  internal: { code: 70, when: 'a defect, or a service that kept crashing' },
  no_output: { code: 73, when: 'the output file cannot be written' },
  io: { code: 74, when: 'reading or writing failed half-way' },
  temporary: { code: 75, when: 'the service is busy, slow or full: the same command may work later' },
  permission: { code: 77, when: 'no capability, one that does not allow this, or a secret file that others can read' },
  config: { code: 78, when: 'the configuration was refused; nothing was started' },
  interrupted: { code: 130, when: 'Ctrl-C, or for `ron up` the second one' },
  broken_pipe: { code: 141, when: 'the reader of the output closed it' },
  terminated: { code: 143, when: 'SIGTERM, or for `ron up` the second one' },
} as const;

export type Exit = keyof typeof EXITS;

/** An error that says what to do. `message` is a sentence for people. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exit: Exit;
  /** A stable word for `--json`. */
  readonly code: string;

  constructor(exit: Exit, message: string, code: string = exit) {
    super(message);
    this.exit = exit;
    this.code = code;
  }
}

const EXIT_OF_CODE: Partial<Record<ErrorCode, Exit>> = {
  integrity: 'data',
  address_mismatch: 'data',
  not_found: 'no_input',
  range_not_satisfiable: 'no_input',
  unreachable: 'unavailable',
  draining: 'unavailable',
  not_ready: 'unavailable',
  unhealthy: 'unavailable',
  unauthorized: 'permission',
  forbidden: 'permission',
  conflict: 'failed',
  bad_request: 'usage',
  validation: 'usage',
};

const EXIT_OF_SYSTEM_CODE: Readonly<Record<string, Exit>> = {
  ENOENT: 'no_input',
  EISDIR: 'usage',
  ENOTDIR: 'no_input',
  EACCES: 'permission',
  EPERM: 'permission',
};

export function exitOf(error: unknown): Exit {
  if (error instanceof CliError) return error.exit;
  // A key file that is refused is not ready to a service; here somebody has to mend it.
  if (isRonError(error) && error.op === 'key_file') return 'permission';
  if (isRonError(error)) return EXIT_OF_CODE[error.code] ?? (error.retryable ? 'temporary' : 'internal');
  const code = systemCode(error);
  if (code === undefined) return 'internal';
  return EXIT_OF_SYSTEM_CODE[code] ?? 'io';
}

/** The stable word of any error, for `--json`. */
export function codeOf(error: unknown): string {
  if (error instanceof CliError || error instanceof RonError) return error.code;
  return systemCode(error) ?? 'internal';
}

export function systemCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return undefined;
  return Object.hasOwn(ERRORS, error.code) || error.code.startsWith('ERR_') ? undefined : error.code;
}
