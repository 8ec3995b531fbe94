/**
 * Searches for secrets in everything that the services of a test file revealed: log lines, output of processes, metrics,
 * and refusals.
 *
 * Contract: importing this module enables the check: it runs at the end of the file, and fails it on a finding.
 * Capabilities are recognised by their form, regardless of their origin; keys and other bytes must be registered with
 * `secret`, and are found in every usual encoding. A finding names the secret and the place, without repeating the
 * secret.
 * Bound: the newest `SHOWN_CHARS_MAX` characters of each kind of place.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { decodeToken } from '../capability/token.ts';
import { readCapability } from '../capability/capability.ts';

const SHOWN_CHARS_MAX = 64 * 1024 * 1024;
/** Fewer bytes would match by chance. */
const SECRET_BYTES_MIN = 8;
/** Base64url of a macaroon of version 2 whose identifier begins with `ron1.`: `02 02 <length> ron1.` */
const TOKEN = /Ag[IJKL][A-Za-z0-9_-]{60,}/g;

export class Leaks {
  /** By encoding: the name of the secret. */
  readonly #secrets = new Map<string, string>();
  readonly #shown = new Map<string, string>();

  /** Bytes, or literal text, that must not be revealed. */
  secret(name: string, value: Uint8Array | string): void {
    const bytes = Buffer.from(value as Uint8Array);
    assert.ok(bytes.length >= SECRET_BYTES_MIN, `${name} is too short to search for`);
    const spellings = [
      bytes.toString('latin1'),
      bytes.toString('utf8'),
      bytes.toString('hex'),
      bytes.toString('hex').toUpperCase(),
      bytes.toString('base64').replace(/=+$/, ''),
      bytes.toString('base64url'),
    ];
    for (const spelling of spellings) this.#secrets.set(spelling, name);
  }

  /** A text that was revealed. */
  shown(where: string, text: string): void {
    const before = this.#shown.get(where) ?? '';
    this.#shown.set(where, `${before}\n${text}`.slice(-SHOWN_CHARS_MAX));
  }

  /** The findings, one per line. */
  findings(): string[] {
    const found = new Set<string>();
    for (const [where, text] of this.#shown) {
      for (const [spelling, name] of this.#secrets) if (text.includes(spelling)) found.add(`${name} in ${where}`);
      for (const [token] of text.matchAll(TOKEN)) if (isCapability(token)) found.add(`a capability in ${where}`);
    }
    return [...found];
  }
}

/** Matches a truncated token too, and one followed by more letters: a reader of most of it has seen too much. */
function isCapability(text: string): boolean {
  const macaroon = decodeToken(text);
  if (macaroon.ok) return readCapability(macaroon.value).ok;
  return Buffer.from(text, 'base64url').subarray(3, 16).includes('ron1.');
}

/** The collector of this test file. */
export const leaks = new Leaks();

after(() => assert.deepEqual(leaks.findings(), [], 'secrets were revealed'));
