/**
 * Refuses request targets that two implementations could read differently.
 *
 * Contract: a target that passes is in origin form. Its percent-encoding is well-formed UTF-8 without control characters,
 * and its path has no empty segment, no dot segment and no backslash, literal or encoded. An encoded slash passes only
 * under a prefix that allows it, and counts as a slash for the other rules. Never throws.
 * Bound: one pass, targets up to `target_bytes_max`; longer ones are refused without a scan.
 */
import { RonError } from '@ron/kernel';

export interface PathGuardInit {
  /** Longest request target, path and query, in bytes. Default 8192. */
  target_bytes_max?: number;
  /** Paths below these prefixes may carry `%2F` in a parameter (key ids do). Each begins and ends with `/`. Default none. */
  encoded_slash_prefixes?: readonly string[];
}

export const TARGET_BYTES_MAX = 8192;

export type PathGuard = (target: string | undefined) => RonError | undefined;

/** Returns the check with its limits bound. The check returns the error to send, or undefined if the target passes. */
export function pathGuard(init: PathGuardInit = {}): PathGuard {
  const bytes_max = init.target_bytes_max ?? TARGET_BYTES_MAX;
  const prefixes = init.encoded_slash_prefixes ?? [];
  return (target = '') => {
    if (target.length > bytes_max)
      return new RonError('uri_too_long', `the request target is longer than ${bytes_max} bytes`);
    const flaw = flawOf(target, prefixes);
    return flaw === undefined ? undefined : new RonError('bad_path', `the request target is refused: ${flaw}`);
  };
}

const HASH = 35;
const PERCENT = 37;
const DOT = 46;
const SLASH = 47;
const SEMICOLON = 59;
const QUESTION = 63;
const BACKSLASH = 92;

function flawOf(target: string, prefixes: readonly string[]): string | undefined {
  if (target.charCodeAt(0) !== SLASH) return 'only targets in origin form, which begin with /, are served';
  let inPath = true;
  // The segment so far: how many dots, and whether it is dots only. `..;x` counts as `..`, because some servers read it so.
  let dots = 0;
  let dotsOnly = true;
  let empty = true;
  for (let i = 1; i <= target.length;) {
    let code = i < target.length ? target.charCodeAt(i) : -1;
    i += 1;
    if (code === PERCENT) {
      code = hexPair(target, i);
      i += 2;
      const flaw = flawOfEncoded(target, i, code, inPath);
      if (flaw !== undefined) return flaw;
      if (code >= 0x80) {
        i = utf8End(target, i, code);
        if (i < 0) return 'it does not decode to UTF-8';
      }
      if (code === SLASH && inPath && !prefixes.some((prefix) => target.startsWith(prefix)))
        return 'an encoded slash is not allowed here';
      if (code === QUESTION || code === SEMICOLON) code = 0x80; // An encoded delimiter is data.
    } else if (code !== -1 && (code <= 0x20 || code >= 0x7f || code === HASH))
      return 'it contains a character that must be encoded';
    if (!inPath) continue;
    if (code === SLASH || code === QUESTION || code === -1) {
      if (dotsOnly && dots > 0 && dots <= 2) return 'it contains a dot segment';
      if (empty && code === SLASH) return 'it contains an empty segment';
      if (code === QUESTION) inPath = false;
      dots = 0;
      dotsOnly = true;
      empty = true;
    } else if (code === BACKSLASH) return 'it contains a backslash';
    else {
      empty = false;
      if (code === SEMICOLON && dotsOnly && dots > 0 && dots <= 2) return 'it contains a dot segment';
      if (code === DOT) dots += 1;
      else dotsOnly = false;
    }
  }
  return undefined;
}

/** `next` is the position after the pair. */
function flawOfEncoded(target: string, next: number, code: number, inPath: boolean): string | undefined {
  if (code < 0) return 'it contains a malformed percent-encoding';
  if (code < 0x20 || code === 0x7f) return 'it contains an encoded control character';
  // %25 before two hex digits: decoding twice would yield another path.
  if (inPath && code === PERCENT && hexPair(target, next) >= 0) return 'it is encoded twice';
  return undefined;
}

/** The byte of two hex digits at `at`, or -1. */
function hexPair(text: string, at: number): number {
  const high = hexDigit(text.charCodeAt(at));
  const low = hexDigit(text.charCodeAt(at + 1));
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

function hexDigit(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  const lower = code | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** The end of the percent-encoded UTF-8 sequence that began with `lead`, or -1. Overlong forms and surrogates could hide `/` and `.`. */
function utf8End(text: string, at: number, lead: number): number {
  const more =
    lead >= 0xc2 && lead <= 0xdf ? 1 : lead >= 0xe0 && lead <= 0xef ? 2 : lead >= 0xf0 && lead <= 0xf4 ? 3 : -1;
  if (more < 0) return -1;
  let i = at;
  for (let n = 0; n < more; n += 1) {
    const byte = text.charCodeAt(i) === PERCENT ? hexPair(text, i + 1) : -1;
    const least = n > 0 ? 0x80 : lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const most = n > 0 ? 0xbf : lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (byte < least || byte > most) return -1;
    i += 3;
  }
  return i;
}
