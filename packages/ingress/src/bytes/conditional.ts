/**
 * Conditional requests (RFC 9110, 13): If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since, If-Range, in
 * the order and with the comparisons of the RFC.
 *
 * Contract: exact for well-formed headers. A malformed If-Match matches nothing (412, to be safe), a malformed
 * If-None-Match matches nothing (a full answer), a malformed date is ignored, a malformed If-Range drops the range.
 * Bound: one pass over each header, no allocation for entity tags. Never throws.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { sched } from '@ron/kernel';

export interface Validators {
  /** A complete entity tag, quotes included: `"b3:..."`, or `W/"..."` when it is weak. */
  readonly etag: string;
  /** When the bytes last changed (Unix ms). Without it the date conditions are ignored. */
  readonly last_modified_ms?: number | undefined;
}

/** As Node provides them: a repeated If-Range is a list and matches nothing. */
export type ConditionHeaders = Partial<
  Pick<IncomingHttpHeaders, 'if-match' | 'if-unmodified-since' | 'if-none-match' | 'if-modified-since' | 'if-range'>
>;

/** `full`: answer, but ignore `Range` (an If-Range did not hold). */
export type ConditionVerdict = 'proceed' | 'full' | 'not_modified' | 'precondition_failed';

/** Evaluates a request against the current representation; `current` is undefined if there is none (a PUT that creates). */
export function evaluateConditions(
  method: string,
  headers: ConditionHeaders,
  current: Validators | undefined,
): ConditionVerdict {
  const read = method === 'GET' || method === 'HEAD';
  const if_match = headers['if-match'];
  if (if_match !== undefined) {
    if (!etagMatches(if_match, current?.etag, 'strong')) return 'precondition_failed';
  } else if (isModifiedSince(headers['if-unmodified-since'], current) === true) return 'precondition_failed';

  const if_none_match = headers['if-none-match'];
  if (if_none_match !== undefined) {
    if (etagMatches(if_none_match, current?.etag, 'weak')) return read ? 'not_modified' : 'precondition_failed';
  } else if (read && isModifiedSince(headers['if-modified-since'], current) === false) return 'not_modified';

  const if_range = headers['if-range'];
  return if_range === undefined || (typeof if_range === 'string' && ifRangeHolds(if_range, current))
    ? 'proceed'
    : 'full';
}

/** Undefined if the header is absent or not a date, or if there is no modification time. */
function isModifiedSince(header: string | undefined, current: Validators | undefined): boolean | undefined {
  if (header === undefined || current?.last_modified_ms === undefined) return undefined;
  const since_ms = parseHttpDate(header);
  return since_ms === undefined ? undefined : toSecond(current.last_modified_ms) > since_ms;
}

function ifRangeHolds(header: string, current: Validators | undefined): boolean {
  if (current === undefined) return false;
  if (header.endsWith('"')) return header === current.etag && isStrongTag(header);
  const date_ms = parseHttpDate(header);
  if (date_ms === undefined || current.last_modified_ms === undefined) return false;
  // A date is a strong validator only once its second is over: until then the bytes may change without a new date.
  return toSecond(current.last_modified_ms) === date_ms && sched.wall_ms() - date_ms >= 2000;
}

function toSecond(time_ms: number): number {
  return Math.floor(time_ms / 1000) * 1000;
}

const QUOTE = 34;
const COMMA = 44;

function isStrongTag(tag: string): boolean {
  return tag.charCodeAt(0) === QUOTE && tagEnd(tag, 0) === tag.length;
}

/** The end of the entity tag at `at`, or -1 if there is none. */
function tagEnd(text: string, at: number): number {
  let i = at;
  if (text.startsWith('W/', i)) i += 2;
  if (text.charCodeAt(i) !== QUOTE) return -1;
  for (i += 1; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) return i + 1;
    if (code < 0x21 || code === 0x7f || code > 0xff) return -1;
  }
  return -1;
}

/**
 * Whether a list of entity tags (or `*`) matches. Strong: both strong and identical; weak: opaque parts identical.
 * A malformed list matches nothing. `etag` undefined: there is no representation, so not even `*` matches.
 */
export function etagMatches(list: string, etag: string | undefined, comparison: 'strong' | 'weak'): boolean {
  if (etag === undefined) return false;
  if (list === '*') return true;
  const current_weak = etag.startsWith('W/');
  const opaque_at = current_weak ? 2 : 0;
  let matched = false;
  let expectTag = true; // Only a comma may follow a tag.
  for (let at = 0; at < list.length;) {
    const code = list.charCodeAt(at);
    if (code === 32 || code === 9) at += 1;
    else if (code === COMMA) {
      expectTag = true;
      at += 1;
    } else {
      const end = expectTag ? tagEnd(list, at) : -1;
      if (end < 0) return false;
      const weak = code !== QUOTE;
      const start = weak ? at + 2 : at;
      if ((comparison === 'weak' || (!weak && !current_weak)) && end - start === etag.length - opaque_at)
        matched ||= list.slice(start, end) === etag.slice(opaque_at);
      expectTag = false;
      at = end;
    }
  }
  return matched;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const LONG_DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const IMF_FIXDATE = /^([A-Z][a-z]{2}), (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT$/;
const RFC_850 = /^([A-Z][a-z]{5,8}), (\d{2})-([A-Z][a-z]{2})-(\d{2}) (\d{2}):(\d{2}):(\d{2}) GMT$/;
const ASCTIME = /^([A-Z][a-z]{2}) ([A-Z][a-z]{2}) ([ \d]\d) (\d{2}):(\d{2}):(\d{2}) (\d{4})$/;

const DATE_CHARS_MAX = 40;
/** The last date: answers of the same second have the same. */
let last_text: string | undefined;
let last_ms: number | undefined;

/** An HTTP-date in any of the three forms a recipient must accept (RFC 9110, 5.6.7), as Unix ms; undefined if the text is not a date. */
export function parseHttpDate(text: string): number | undefined {
  if (text.length > DATE_CHARS_MAX) return undefined;
  if (text === last_text) return last_ms;
  const time_ms = parseDate(text);
  // The year of a date with two digits depends on the clock.
  if (text.endsWith(' GMT') && !text.includes('-')) [last_text, last_ms] = [text, time_ms];
  return time_ms;
}

function parseDate(text: string): number | undefined {
  const imf = IMF_FIXDATE.exec(text);
  if (imf !== null) return unixTime(DAYS, imf[1]!, imf[4]!, imf[3]!, imf[2]!, imf[5]!, imf[6]!, imf[7]!);
  const asctime = ASCTIME.exec(text);
  if (asctime !== null)
    return unixTime(DAYS, asctime[1]!, asctime[7]!, asctime[2]!, asctime[3]!, asctime[4]!, asctime[5]!, asctime[6]!);
  const old = RFC_850.exec(text);
  if (old === null) return undefined;
  return unixTime(LONG_DAYS, old[1]!, fullYear(old[4]!), old[3]!, old[2]!, old[5]!, old[6]!, old[7]!);
}

/** A two-digit year more than 50 years in the future is in the previous century. */
function fullYear(two_digits: string): string {
  const this_year = new Date(sched.wall_ms()).getUTCFullYear();
  const year = Math.floor(this_year / 100) * 100 + Number(two_digits);
  return String(year > this_year + 50 ? year - 100 : year);
}

function unixTime(
  names: readonly string[],
  weekday: string,
  year: string,
  month: string,
  day: string,
  hour: string,
  minute: string,
  second: string,
): number | undefined {
  const month_index = MONTHS.indexOf(month);
  if (month_index < 0 || !names.includes(weekday) || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 60)
    return undefined;
  const date = new Date(0);
  date.setUTCFullYear(Number(year), month_index, Number(day));
  // 31 February rolls over into March, and a wrong weekday is not valid either.
  if (date.getUTCMonth() !== month_index || date.getUTCDate() !== Number(day)) return undefined;
  if (names[date.getUTCDay()] !== weekday) return undefined;
  return date.getTime() + ((Number(hour) * 60 + Number(minute)) * 60 + Number(second)) * 1000;
}
