/**
 * The `Range` header (RFC 9110, 14.1 and 14.2) for one object of known size.
 *
 * Contract: a single satisfiable byte range is exact, with any number of digits. Several ranges, another unit or a
 * malformed value are ignored, as the RFC allows. Never throws.
 * Bound: one pass over the text; holds nothing.
 */

export type RangeResult =
  | { readonly kind: 'none' }
  | { readonly kind: 'ignore' }
  /** Bytes `start` to `end`, `end` exclusive; `0 <= start < end <= size`. */
  | { readonly kind: 'single'; readonly start: number; readonly end: number }
  | { readonly kind: 'unsatisfiable' };

const NONE: RangeResult = { kind: 'none' };
const IGNORE: RangeResult = { kind: 'ignore' };
const UNSATISFIABLE: RangeResult = { kind: 'unsatisfiable' };

const COMMA = 44;
const ZERO = 48;

export function parseRange(header: string | undefined, size: number): RangeResult {
  if (header === undefined) return NONE;
  const spec = soleSpec(header);
  if (spec === undefined) return IGNORE;
  const dash = spec.indexOf('-');
  if (dash < 0) return IGNORE;
  const first = digits(spec, 0, dash);
  const last = digits(spec, dash + 1, spec.length);
  if (first === undefined || last === undefined) return IGNORE;
  if (first === '') return suffixRange(last, size);
  if (last !== '' && isLess(last, first)) return IGNORE;
  // Rounding is harmless: it affects only numbers larger than any object.
  const start = Number(first);
  if (start >= size) return UNSATISFIABLE;
  return { kind: 'single', start, end: last === '' ? size : Math.min(Number(last) + 1, size) };
}

function suffixRange(length: string, size: number): RangeResult {
  if (length === '') return IGNORE;
  const suffix = Number(length);
  if (suffix === 0) return UNSATISFIABLE;
  // A range of an empty object is satisfiable, but Content-Range cannot express it: answer 200 with the empty body.
  if (size === 0) return IGNORE;
  return { kind: 'single', start: Math.max(0, size - suffix), end: size };
}

/** The one range-spec after `bytes=`; undefined for another unit or several ranges. Empty list members are skipped. */
function soleSpec(header: string): string | undefined {
  if (header.length < 6 || header[5] !== '=' || header.slice(0, 5).toLowerCase() !== 'bytes') return undefined;
  let found: string | undefined;
  for (let at = 6; at <= header.length;) {
    let end = header.indexOf(',', at);
    if (end < 0) end = header.length;
    const member = trimListSpace(header, at, end);
    if (member !== '') {
      if (found !== undefined) return undefined;
      found = member;
    }
    at = end + 1;
  }
  return found;
}

/** Optional space is allowed only beside a comma, not at the ends of the list. */
function trimListSpace(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  if (start > 6) while (start < end && isSpace(text.charCodeAt(start))) start += 1;
  if (text.charCodeAt(to) === COMMA) while (end > start && isSpace(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isSpace(code: number): boolean {
  return code === 32 || code === 9;
}

/** The digits of a part without leading zeros ('' for an empty part, '0' for zero); undefined if it is not a number. */
function digits(text: string, from: number, to: number): string | undefined {
  for (let i = from; i < to; i += 1) {
    const code = text.charCodeAt(i);
    if (code < ZERO || code > ZERO + 9) return undefined;
  }
  let start = from;
  while (start < to - 1 && text.charCodeAt(start) === ZERO) start += 1;
  return text.slice(start, to);
}

function isLess(a: string, b: string): boolean {
  return a.length === b.length ? a < b : a.length < b.length;
}
