/**
 * The entries of the name log: JSON in one spelling, versioned.
 *
 *     {"v":1,"at":1700000000000,"by":["alice","cap-1"],"kind":"name","record":"...","signature":"..."}
 *
 * `at` is the wall time in milliseconds, `by` the subject and the capability, byte strings are base64url without padding.
 * Contract: an entry is accepted only if encoding it again gives the same bytes; an unknown version, kind or field is refused.
 * Bound: `NAME_ENTRY_BYTES_MAX`.
 */
import { checkTarget, isLabelPrefix, isNameKey } from '@ron/proto';
import type { LogChange, StoredRecord } from '../store/index-store.ts';
import { verifiedBefore } from './signed-record.ts';

export interface LogEntry {
  /** Wall time. */
  readonly at_ms: number;
  readonly by: { readonly subject: string; readonly capability_id: string };
  readonly change: LogChange;
}

export const NAME_ENTRY_BYTES_MAX = 8192;
const VERSION = 1;
const TEXT_CHARS_MAX = 256;

export function encodeLogEntry({ at_ms, by, change }: LogEntry): Uint8Array {
  const head = { v: VERSION, at: at_ms, by: [textOf(by.subject), textOf(by.capability_id)], kind: change.kind };
  return Buffer.from(JSON.stringify({ ...head, ...fieldsOf(change) }));
}

/** Undefined if the bytes are not an entry of this version. Never throws. */
export function decodeLogEntry(bytes: Uint8Array): LogEntry | undefined {
  if (bytes.length > NAME_ENTRY_BYTES_MAX) return undefined;
  const value = parsed(bytes);
  if (value === undefined || value['v'] !== VERSION) return undefined;
  const { at, by } = value;
  if (typeof at !== 'number' || !Number.isSafeInteger(at) || at < 0) return undefined;
  if (!Array.isArray(by) || by.length !== 2) return undefined;
  const [subject, capability_id] = by as unknown[];
  if (!isText(subject) || !isText(capability_id)) return undefined;
  const change = changeOf(value);
  if (change === undefined) return undefined;
  const entry: LogEntry = { at_ms: at, by: { subject, capability_id }, change };
  return Buffer.compare(encodeLogEntry(entry), bytes) === 0 ? entry : undefined;
}

function fieldsOf(change: LogChange): Record<string, unknown> {
  if (change.kind === 'name') return signedOf(change.record);
  if (change.kind === 'fork') return { current: signedOf(change.record), rival: signedOf(change.rival) };
  if (change.kind === 'trust') return { prefix: change.prefix, key: change.key ?? null };
  if (change.kind === 'pin') return { target: change.target, pinned: change.isPinned };
  return { action: textOf(change.action) };
}

function changeOf(value: Record<string, unknown>): LogChange | undefined {
  const { kind, prefix, key, target, pinned, action } = value;
  switch (kind) {
    case 'name': {
      const record = recordIn(value);
      return record && { kind, record };
    }
    case 'fork': {
      const [record, rival] = [recordIn(value['current']), recordIn(value['rival'])];
      return record && rival && { kind, record, rival };
    }
    case 'trust':
      if (!isLabelPrefix(prefix) || (key !== null && !isNameKey(key))) return undefined;
      return { kind, prefix, key: key ?? undefined };
    case 'pin':
      if (typeof target !== 'string' || !checkTarget(target).ok || typeof pinned !== 'boolean') return undefined;
      return { kind, target, isPinned: pinned };
    case 'admin':
      return isText(action) ? { kind, action } : undefined;
    default:
      return undefined;
  }
}

function parsed(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes).toString('utf8'));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function signedOf({ record, signature }: StoredRecord): Record<string, string> {
  return { record: toBase64url(record), signature: toBase64url(signature) };
}

function recordIn(value: unknown): StoredRecord | undefined {
  if (!isObject(value)) return undefined;
  const { record, signature } = value;
  if (typeof record !== 'string' || typeof signature !== 'string') return undefined;
  return verifiedBefore(Buffer.from(record, 'base64url'), Buffer.from(signature, 'base64url'))?.stored;
}

const toBase64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Text of a capability: bounded, and without characters that JSON or a terminal would change. */
const TEXT = /^[\x20-\x7e]{0,256}$/;
const isText = (value: unknown): value is string => typeof value === 'string' && TEXT.test(value);
const textOf = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, TEXT_CHARS_MAX);
