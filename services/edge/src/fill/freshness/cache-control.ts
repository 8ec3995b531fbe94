/**
 * The directives of a `Cache-Control` header of an answer (RFC 9111, 5.2.2), as a shared cache reads them.
 *
 * Contract: names are compared without case; a value may be quoted. The form with field names (`private="set-cookie"`,
 * `no-cache="..."`) counts as the form without. A time that is malformed, or stated twice with two values, is 0: the answer
 * is stale at once. Unknown directives are ignored. A header that is malformed counts as `no-store`: the part that cannot be
 * read may forbid storage.
 * Bound: `HEADER_CHARS_MAX` characters; a longer header counts as `no-store`.
 *
 *   parseCacheControl('public, max-age=60').times.get('max-age'); // 60
 */
const HEADER_CHARS_MAX = 4096;
/** RFC 9111, 1.2.2: a larger time is treated as this one. */
export const DELTA_S_MAX = 2 ** 31;

export type FlagDirective = 'no-store' | 'private' | 'no-cache' | 'must-revalidate' | 'proxy-revalidate';
export type TimeDirective = 's-maxage' | 'max-age' | 'stale-while-revalidate' | 'stale-if-error';

const FLAGS: ReadonlySet<string> = new Set<FlagDirective>([
  'no-store',
  'private',
  'no-cache',
  'must-revalidate',
  'proxy-revalidate',
]);
const TIMES: ReadonlySet<string> = new Set<TimeDirective>([
  's-maxage',
  'max-age',
  'stale-while-revalidate',
  'stale-if-error',
]);

export interface CacheControl {
  readonly flags: ReadonlySet<FlagDirective>;
  /** Seconds. */
  readonly times: ReadonlyMap<TimeDirective, number>;
}

const TOKEN = "[!#$%&'*+.^_`|~\\w-]";
/** One element of the list, which may be empty: a name, and a token or a quoted string as its value. */
const ELEMENT = new RegExp(`[\\t ]*(?:(${TOKEN}+)(?:=(${TOKEN}*|"(?:[^"\\\\]|\\\\.)*"))?[\\t ]*)?(?:,|$)`, 'y');
/** In the value of a time: quotes that enclose more than one directive. */
const FORBIDS = /no-store|private|no-cache/i;

/** The last header and its directives: an asset is judged several times, and an origin usually sends the same to all. */
let last: { readonly header: string | undefined; readonly control: CacheControl } | undefined;

export function parseCacheControl(header: string | undefined): CacheControl {
  if (last === undefined || last.header !== header) last = { header, control: parse(header) };
  return last.control;
}

function parse(header: string | undefined): CacheControl {
  const flags = new Set<FlagDirective>();
  const times = new Map<TimeDirective, number>();
  const given = header ?? '';
  if (given.length > HEADER_CHARS_MAX) flags.add('no-store');
  const text = given.slice(0, HEADER_CHARS_MAX);
  for (let at = 0; at < text.length;) {
    ELEMENT.lastIndex = at;
    const element = ELEMENT.exec(text);
    if (element === null) {
      flags.add('no-store');
      at = nextElement(text, at);
      continue;
    }
    at = ELEMENT.lastIndex;
    const [, word = '', value = ''] = element;
    const name = word.toLowerCase();
    if (FLAGS.has(name)) flags.add(name as FlagDirective);
    if (!TIMES.has(name)) continue;
    addTime(times, name as TimeDirective, value);
    if (FORBIDS.test(value)) flags.add('no-store');
  }
  return { flags, times };
}

/** Behind the next comma: an element that cannot be read is skipped. */
function nextElement(text: string, at: number): number {
  const comma = text.indexOf(',', at);
  return comma < 0 ? text.length : comma + 1;
}

function addTime(times: Map<TimeDirective, number>, name: TimeDirective, value: string): void {
  const digits = /^"?(\d+)"?$/.exec(value)?.[1];
  const time_s = digits === undefined ? 0 : Math.min(Number(digits), DELTA_S_MAX);
  const known = times.get(name);
  times.set(name, known === undefined || known === time_s ? time_s : 0);
}
