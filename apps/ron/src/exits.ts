/**
 * Exit codes of the command line. Scripts depend on them: they follow `sysexits.h` and do not change.
 * `docs/cli.md` shows this table.
 */
import { ERRORS, isRonError, RonError, type ErrorCode } from '@ron/kernel/core';

export const EXITS = {
  ok: { code: 0, when: 'success' },
  failed: {
    code: 1,
    when: '`ron doctor` or `ron scrub` found a problem, a task failed, or the state, a policy or a limit of the service does not allow the operation',
  },
  usage: { code: 64, when: 'unknown command or flag, or an invalid argument' },
  data: { code: 65, when: 'data does not match its address or signature; it was discarded' },
  no_input: { code: 66, when: 'the object, the range or the file to read does not exist' },
  unavailable: {
    code: 69,
    when: 'a service does not run, cannot be reached or failed to start; the directory is in use',
  },
  internal: { code: 70, when: 'a defect in ron, or a service that kept crashing' },
  no_output: { code: 73, when: 'the output file cannot be written' },
  io: { code: 74, when: 'reading or writing failed' },
  temporary: { code: 75, when: 'the service is busy, slow or full; retry later' },
  permission: { code: 77, when: 'a capability is missing or insufficient, or other users can read a secret file' },
  config: { code: 78, when: 'the configuration is invalid; nothing was started' },
  interrupted: { code: 130, when: 'Ctrl-C, or for `ron up` the second one' },
  broken_pipe: { code: 141, when: 'the reader of the output closed it' },
  terminated: { code: 143, when: 'SIGTERM, or for `ron up` the second one' },
} as const;

export type Exit = keyof typeof EXITS;

/** An error whose `message` tells the user what to do. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exit: Exit;
  /** Stable identifier for `--json`. */
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
  audit_integrity: 'unavailable',
  degraded_audit: 'unavailable',
  unhealthy: 'unavailable',
  unauthorized: 'permission',
  forbidden: 'permission',
  conflict: 'failed',
  bad_request: 'usage',
  validation: 'usage',
  unprocessable: 'usage',
  bad_path: 'usage',
  uri_too_long: 'usage',
  bad_gateway: 'unavailable',
  not_cached: 'unavailable',
};

const EXIT_OF_SYSTEM_CODE: Readonly<Record<string, Exit>> = {
  ENOENT: 'no_input',
  EISDIR: 'usage',
  ENOTDIR: 'no_input',
  EACCES: 'permission',
  EPERM: 'permission',
};

function exitOfOther({ retryable, status }: RonError): Exit {
  if (retryable) return 'temporary';
  // A refusal, such as a policy or a limit of the service.
  return status >= 400 && status < 500 ? 'failed' : 'internal';
}

export function exitOf(error: unknown): Exit {
  if (error instanceof CliError) return error.exit;
  if (isRefusedFile(error)) return 'permission';
  if (isRonError(error)) return EXIT_OF_CODE[error.code] ?? exitOfOther(error);
  const code = systemCode(error);
  if (code === undefined) return 'internal';
  return EXIT_OF_SYSTEM_CODE[code] ?? 'io';
}

/** A service reports a refused secret file as `not_ready`; on the command line the user has to fix its permissions. */
const isRefusedFile = (error: unknown): boolean => isRonError(error) && error.op === 'key_file';

/** The stable identifier of any error, for `--json`. */
export function codeOf(error: unknown): string {
  if (isRefusedFile(error)) return 'permission';
  if (error instanceof CliError || error instanceof RonError) return error.code;
  return systemCode(error) ?? 'internal';
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export function systemCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return undefined;
  return Object.hasOwn(ERRORS, error.code) || error.code.startsWith('ERR_') ? undefined : error.code;
}
