/**
 * Looks for secrets in everything that the services of a test file showed: log lines, output of processes, metrics, and
 * answers that say no.
 *
 * Contract: importing this is enough for the check: it runs when the file ends, and fails it. A capability is recognised by
 * what it is, wherever it came from; keys and other bytes by being told to `secret`, in every usual spelling. A finding names
 * the secret and the place, and does not repeat the secret.
 * Bound: `SHOWN_CHARS_MAX` of each kind of place are kept, the newest.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { decodeToken } from '../capability/token.ts';
import { readCapability } from '../capability/capability.ts';

const SHOWN_CHARS_MAX = 64 * 1024 * 1024;
/** Fewer bytes are found by chance. */
const SECRET_BYTES_MIN = 8;
/** Base64url of a macaroon of version 2 whose identifier begins as ours do: `02 02 <length> ron1.` */
const TOKEN = /Ag[IJKL][A-Za-z0-9_-]{60,}/g;

export class Leaks {
  /** Spelling to the name of the secret. */
  readonly #secrets = new Map<string, string>();
  readonly #shown = new Map<string, string>();

  /** Bytes, or text as it is, that must not be seen. */
  secret(name: string, value: Uint8Array | string): void {
    const bytes = Buffer.from(value as Uint8Array);
    assert.ok(bytes.length >= SECRET_BYTES_MIN, `${name} is too short to look for`);
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

  /** Something that anybody may have seen. */
  shown(where: string, text: string): void {
    const before = this.#shown.get(where) ?? '';
    this.#shown.set(where, `${before}\n${text}`.slice(-SHOWN_CHARS_MAX));
  }

  /** What was found, a line each. */
  findings(): string[] {
    const found = new Set<string>();
    for (const [where, text] of this.#shown) {
      for (const [spelling, name] of this.#secrets) if (text.includes(spelling)) found.add(`${name} in ${where}`);
      for (const [token] of text.matchAll(TOKEN)) if (isCapability(token)) found.add(`a capability in ${where}`);
    }
    return [...found];
  }
}

/** Also one that is cut off or followed by more of the same letters: whoever sees most of it has seen too much. */
function isCapability(text: string): boolean {
  const macaroon = decodeToken(text);
  if (macaroon.ok) return readCapability(macaroon.value).ok;
  return Buffer.from(text, 'base64url').subarray(3, 16).includes('ron1.');
}

/** Of this test file. */
export const leaks = new Leaks();

after(() => assert.deepEqual(leaks.findings(), [], 'secrets were shown'));
