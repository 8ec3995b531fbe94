/**
 * A key set in a file that only its owner can read.
 *
 * Contract: reading and writing are those of `@ron/log/secret-file`: the file is complete or absent, and one that other
 * users can access is refused. Creation never replaces a file that another process created first. A damaged file is
 * refused, and the error states the remedy.
 * Bound: `FILE_BYTES_MAX`. Secrets never become strings here, so that all copies can be zeroed.
 *
 *   ron-keys v1 root                     or: ron-keys v1 audience storage
 *   <key id> <64 hex digits>             the current key first
 *   check <16 hex digits>                of the SHA-256 of the lines above
 */
import { hash } from 'node:crypto';
import { open, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isService } from '@ron/proto';
import { makeDirectory, readSecretBytes, createSecret, writeSecret } from '@ron/log';
import { RonError } from '@ron/kernel';
import { KEY_ID_PATTERN, RING_KEYS_MAX, SECRET_BYTES } from './key-ring.ts';
import type { KeySet, RingKey } from './key-ring.ts';

const FILE_BYTES_MAX = 4096;
const FILE_MODE = 0o600;
const DIRECTORY_MODE = 0o700;
const HEADER = 'ron-keys v1 ';
const CHECK = 'check ';
const CHECK_CHARS = 16;
const LF = 0x0a;

/** Reads a key file. Undefined if there is none. The caller owns the secrets. */
export async function readKeyFile(path: string): Promise<KeySet | undefined> {
  const bytes = await readSecretBytes(path, FILE_BYTES_MAX);
  if (bytes === undefined) return undefined;
  const set = parseKeyFile(bytes);
  bytes.fill(0);
  if (typeof set === 'string') {
    throw refused(
      `${path} is not a key file, or is damaged (${set}): restore it from a backup, or move it away to get new keys, which invalidates every capability`,
    );
  }
  return set;
}

/** Writes a new key file. False if there is one already, which is left unchanged. */
export async function createKeyFile(path: string, set: KeySet): Promise<boolean> {
  await makeDirectory(dirname(path), DIRECTORY_MODE);
  return await withBytes(set, (bytes) => createSecret(path, bytes));
}

/** Writes a key file over an existing one. */
export async function replaceKeyFile(path: string, set: KeySet): Promise<void> {
  await withBytes(set, (bytes) => writeSecret(path, bytes));
}

async function withBytes<T>(set: KeySet, write: (bytes: Uint8Array) => Promise<T>): Promise<T> {
  const bytes = formatKeyFile(set);
  try {
    return await write(bytes);
  } finally {
    bytes.fill(0);
  }
}

/** Runs `change` under an exclusive lock of the file. Does not wait: a second caller is refused. */
export async function withKeyFileLock<T>(path: string, change: () => Promise<T>): Promise<T> {
  const lock = `${path}.lock`;
  try {
    await (await open(lock, 'wx', FILE_MODE)).close();
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    throw new RonError('conflict', `another process is changing ${path}; if none is, remove ${lock} and try again`);
  }
  try {
    return await change();
  } finally {
    await unlink(lock);
  }
}

/** The bytes of a key file. The caller zeroes them. */
export function formatKeyFile(set: KeySet): Buffer {
  const parts: Uint8Array[] = [
    Buffer.from(`${HEADER}${set.audience === 'root' ? 'root' : `audience ${set.audience}`}\n`),
  ];
  for (const { key_id, secret } of set.keys)
    parts.push(Buffer.from(`${key_id} `), toHexBytes(secret), Uint8Array.of(LF));
  const body = Buffer.concat(parts);
  const file = Buffer.concat([body, Buffer.from(`${CHECK}${checkOf(body)}\n`)]);
  body.fill(0);
  for (const part of parts) part.fill(0);
  return file;
}

/** The key set, whose secrets are copies, or the reason why it is invalid. Never throws, never repeats a byte of the file. */
export function parseKeyFile(bytes: Uint8Array): KeySet | string {
  if (bytes.length > FILE_BYTES_MAX) return 'it is too long';
  const check_chars = CHECK.length + CHECK_CHARS + 1;
  const body = bytes.subarray(0, Math.max(0, bytes.length - check_chars));
  const check = Buffer.from(bytes.subarray(body.length)).toString('latin1');
  if (check !== `${CHECK}${checkOf(body)}\n`) return 'its check line does not match';
  const [header, ...lines] = splitLines(body);
  const audience = parseHeader(header ?? new Uint8Array(0));
  if (audience === undefined) return 'its first line is unknown';
  if (lines.length === 0 || lines.length > RING_KEYS_MAX) return `it does not have 1 to ${RING_KEYS_MAX} keys`;
  const keys = lines.map(parseKeyLine);
  if (!keys.every((key) => key !== undefined)) return 'a key line is malformed';
  if (new Set(keys.map((key) => key.key_id)).size < keys.length) return 'a key id occurs twice';
  return { audience, keys };
}

function parseHeader(line: Uint8Array): KeySet['audience'] | undefined {
  const text = Buffer.from(line).toString('latin1');
  if (text === `${HEADER}root`) return 'root';
  const audience = text.startsWith(`${HEADER}audience `) ? text.slice(`${HEADER}audience `.length) : '';
  return isService(audience) ? audience : undefined;
}

function parseKeyLine(line: Uint8Array): RingKey | undefined {
  const space = line.indexOf(0x20);
  const key_id = Buffer.from(line.subarray(0, Math.max(0, space))).toString('latin1');
  const secret = fromHexBytes(line.subarray(space + 1));
  return KEY_ID_PATTERN.test(key_id) && secret !== undefined ? { key_id, secret } : undefined;
}

function splitLines(bytes: Uint8Array): Uint8Array[] {
  const lines: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(LF, at);
    if (end < 0) return [];
    lines.push(bytes.subarray(at, end));
    at = end + 1;
  }
  return lines;
}

function checkOf(body: Uint8Array): string {
  return hash('sha256', body, 'hex').slice(0, CHECK_CHARS);
}

function toHexBytes(secret: Uint8Array): Uint8Array {
  return Uint8Array.from({ length: 2 * secret.length }, (_, at) => {
    const byte = secret[at >> 1] ?? 0;
    const digit = at % 2 === 0 ? byte >> 4 : byte & 15;
    return digit < 10 ? 0x30 + digit : 0x57 + digit;
  });
}

function fromHexBytes(digits: Uint8Array): Uint8Array | undefined {
  if (digits.length !== 2 * SECRET_BYTES) return undefined;
  const secret = new Uint8Array(SECRET_BYTES);
  for (const [at, code] of digits.entries()) {
    const isDigit = code >= 0x30 && code <= 0x39;
    if (!isDigit && !(code >= 0x61 && code <= 0x66)) return undefined;
    secret[at >> 1] = ((secret[at >> 1] ?? 0) << 4) | (isDigit ? code - 0x30 : code - 0x57);
  }
  return secret;
}

function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

function refused(message: string): RonError {
  return new RonError('not_ready', message, { op: 'key_file' });
}
