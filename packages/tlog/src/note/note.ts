/**
 * Signed notes (C2SP signed-note), compatible with Go's `sumdb/note`:
 *
 *     <text, one line or more>
 *     <empty line>
 *     — <key name> <base64 of: key id, 4 bytes || signature>
 *
 * Contract: parsing and formatting are inverse. Any other text is refused with `validation`.
 * Bound: a note has at most 1 MiB and 100 signatures.
 */
import { isUtf8 } from 'node:buffer';
import { RonError } from '@ron/kernel';
import { fromBase64 } from './checkpoint.ts';

export interface NoteSignature {
  /** The name of the key. */
  readonly name: string;
  readonly key_id: number;
  /** Without the key id. */
  readonly signature: Uint8Array;
}

export interface Note {
  /** Includes its final newline, but not the empty line. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

export const NOTE_BYTES_MAX = 1024 * 1024;
const SIGNATURES_MAX = 100;
const KEY_ID_BYTES = 4;
const SIGNATURE_LINE = /^\u2014 (\S+) (\S+)$/;
// oxlint-disable-next-line no-control-regex -- the pattern matches them on purpose
const CONTROL = /[\u0000-\u0009\u000b-\u001f]/;

export function isKeyName(name: string): boolean {
  return name !== '' && !/[\s+\u0085]/u.test(name) && name.isWellFormed() && !CONTROL.test(name);
}

export function parseNote(bytes: Uint8Array | string): Note {
  if (bytes.length > NOTE_BYTES_MAX) throw malformed('it is too large');
  if (typeof bytes !== 'string' && !isUtf8(bytes)) throw malformed('it is not UTF-8');
  const whole = typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('utf8');
  if (CONTROL.test(whole) || !whole.isWellFormed()) throw malformed('it contains control characters');
  const border = whole.lastIndexOf('\n\n');
  if (border === -1 || !whole.endsWith('\n')) throw malformed('it has no signatures');
  const lines = whole.slice(border + 2, -1).split('\n');
  if (lines.length > SIGNATURES_MAX) throw malformed('it has too many signatures');
  return { text: whole.slice(0, border + 1), signatures: lines.map(parseSignature) };
}

export function parseSignature(line: string): NoteSignature {
  const [, name = '', encoded = ''] = SIGNATURE_LINE.exec(line) ?? [];
  const bytes = fromBase64(encoded);
  if (!isKeyName(name) || bytes === undefined || bytes.length <= KEY_ID_BYTES) {
    throw malformed('a signature line must be a dash, a name and base64');
  }
  return { name, key_id: bytes.readUInt32BE(0), signature: bytes.subarray(KEY_ID_BYTES) };
}

export function formatSignature({ name, key_id, signature }: NoteSignature): string {
  const bytes = Buffer.allocUnsafe(KEY_ID_BYTES + signature.length);
  bytes.writeUInt32BE(key_id, 0);
  bytes.set(signature, KEY_ID_BYTES);
  return `\u2014 ${name} ${bytes.toString('base64')}\n`;
}

export function formatNote({ text, signatures }: Note): string {
  if (!text.endsWith('\n')) throw malformed('its text must end with a newline');
  return `${text}\n${signatures.map(formatSignature).join('')}`;
}

const malformed = (what: string): RonError => new RonError('validation', `not a signed note: ${what}`);
