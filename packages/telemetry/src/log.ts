/**
 * Logs: one JSON object a line, with secrets taken out.
 *
 * Contract: a value under a name that says authorization, capability, secret, token, password, cookie or key material is
 * replaced before it is written, at any depth, in fields, in the bindings of children and in errors.
 * Bound: objects are written to a depth of `DEPTH_MAX`; deeper members are omitted. Overflow, cancellation: see LogSink.
 */
import { pino, stdSerializers, type Logger } from 'pino';
import { standardErrorSink, type LogSink } from './log-sink.ts';
import { sched } from '@ron/kernel';

export type Log = Logger;

/** A reader that stalls again and again is reported at most this often. */
const LOST_WARN_MS = 5000;

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogInit {
  service: string;
  /** Default info. */
  level?: LogLevel;
  /** Default: standard error. */
  sink?: Pick<LogSink, 'write'>;
}

export function createLog(init: LogInit): Log {
  const log = pino(
    {
      level: init.level ?? 'info',
      base: { service: init.service, pid: process.pid },
      timestamp: () => `,"time":"${new Date(sched.wall_ms()).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }), log: redactFields },
      serializers: { err: serializeError, error: serializeError },
    },
    init.sink ?? standardErrorSink(),
  );
  if (init.sink === undefined) reportLost(log);
  // Bindings are written into every line of a child without passing the formatter above. Children inherit these two, so
  // both must act on the logger that they are called on.
  // oxlint-disable-next-line typescript/unbound-method
  const { child, setBindings } = log;
  log.child = function (this: Log, bindings: Record<string, unknown>, options?: object) {
    return child.call(this, redactFields(bindings), options);
  } as typeof log.child;
  log.setBindings = function (this: Log, bindings: Record<string, unknown>) {
    setBindings.call(this, redactFields(bindings));
  };
  return log;
}

/** Lost lines are reported by the first log of the process that writes to standard error. */
function reportLost(log: Log): void {
  const sink = standardErrorSink();
  if (sink.onLost !== undefined) return;
  const warn = warnAtMostEvery(log, LOST_WARN_MS);
  sink.onLost = (lines, code) => warn({ code, lines }, `lost log lines: ${reasonOf(code)}`);
}

function reasonOf(code: string | undefined): string {
  return code === 'EAGAIN' ? 'the reader of standard error is too slow' : 'writes to standard error failed';
}

/** Warns at most once in `interval_ms`; the next warning says how many were left out. One for each message. */
export function warnAtMostEvery(
  log: Pick<Log, 'warn'>,
  interval_ms: number,
): (fields: Record<string, unknown>, message: string) => void {
  let warned_ms = Number.NEGATIVE_INFINITY;
  let suppressed = 0;
  return (fields, message) => {
    const now_ms = sched.now_ms();
    if (now_ms - warned_ms < interval_ms) {
      suppressed += 1;
      return;
    }
    warned_ms = now_ms;
    log.warn(suppressed === 0 ? fields : { ...fields, suppressed }, message);
    suppressed = 0;
  };
}

export const REDACTED = '[redacted]';
const TOO_DEEP = '[too deep]';
const DEPTH_MAX = 6;

/**
 * The last word of a name decides: `root_secret` and `set-cookie` are secrets, `capability_file` is a path. A word for how
 * the value is written (`secret_b64`) does not count as the last one.
 */
const SECRET_NAME =
  /(^|[-_.])(authorization|capability|capabilities|macaroons?|secrets?|tokens?|passwords?|passphrases?|cookies?|credentials?|plaintext|kek|(private|root|mac|api|audience|signing|secret|plaintext)[-_]?keys?)([-_]?(b64|base64|base64url|hex|bytes))?$/i;

/** Names repeat from line to line; this spares them the two expressions. Full: the rest is worked out each time. */
const known = new Map<string, boolean>();
const KNOWN_MAX = 1024;

function isSecretName(name: string): boolean {
  let isSecret = known.get(name);
  if (isSecret === undefined) {
    isSecret = SECRET_NAME.test(name.replace(/([a-z])([A-Z])/g, '$1_$2'));
    if (known.size < KNOWN_MAX) known.set(name, isSecret);
  }
  return isSecret;
}

/** The same object when it holds no secret, otherwise a copy without. */
export function redactFields(fields: Record<string, unknown>): Record<string, unknown> {
  return redactObject(fields, 0);
}

function redactObject(object: Record<string, unknown>, depth: number): Record<string, unknown> {
  let copy: Record<string, unknown> | undefined;
  for (const name of Object.keys(object)) {
    const value = object[name];
    const safe = isSecretName(name) && hidesSomething(value) ? REDACTED : redactValue(value, depth + 1);
    if (safe === value) continue;
    copy ??= { ...object };
    copy[name] = safe;
  }
  return copy ?? object;
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null) return value;
  // Bytes and dates hold no names.
  if (ArrayBuffer.isView(value) || value instanceof Date) return value;
  if (depth > DEPTH_MAX) return TOO_DEEP;
  // Under any name: JSON would contain its own properties, but not its message.
  if (value instanceof Error) return redactObject(plainError(value), depth);
  // The result of `toJSON` is written, not the members of the object.
  if ('toJSON' in value && typeof value.toJSON === 'function') return redactValue(value.toJSON(), depth + 1);
  if (!Array.isArray(value)) return redactObject(value as Record<string, unknown>, depth);
  const items = value.map((item) => redactValue(item, depth + 1));
  return items.some((item, index) => item !== value[index]) ? items : value;
}

/** A number, such as a count of tokens, is not secret; a text, bytes or an object may be. */
function hidesSomething(value: unknown): boolean {
  return typeof value === 'string' || (typeof value === 'object' && value !== null);
}

function plainError(error: Error): Record<string, unknown> {
  return { ...stdSerializers.err(error) };
}

/** For a logged error itself; one among the fields was made plain with them. */
function serializeError(error: unknown): unknown {
  return redactValue(error, 0);
}
