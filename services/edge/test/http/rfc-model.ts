/**
 * A small model of RFC 9110 for GET and HEAD of known bytes, written from the text of the RFC and sharing no code with edge.
 * Where the RFC leaves a choice, it makes that of edge: several ranges and other units are ignored.
 */
export interface Coded {
  readonly bytes: Buffer;
  readonly etag: string;
}

export interface Representation {
  readonly identity: Coded;
  /** Stored with this content coding; `identity` is the decoded form then. */
  readonly stored?: Coded & { readonly coding: string };
  /** Whole seconds (Unix ms). */
  readonly modified_ms?: number;
}

export interface ModelAnswer {
  readonly status: 200 | 206 | 304 | 406 | 412 | 416;
  readonly body: Buffer;
  readonly etag?: string;
  readonly coding?: string;
  readonly content_range?: string;
}

export type ModelHeaders = Readonly<Record<string, string | undefined>>;

export function modelAnswer(method: string, headers: ModelHeaders, about: Representation): ModelAnswer {
  const chosen = choose(headers['accept-encoding'], about);
  const none = Buffer.alloc(0);
  if (chosen === undefined) return { status: 406, body: none };
  const { bytes, etag, coding } = chosen;
  const common = { etag, ...(coding !== undefined && { coding }) };
  const { modified_ms } = about;
  // 13.2.2, steps 1 and 2.
  const if_match = headers['if-match'];
  if (if_match !== undefined) {
    if (!tagListHolds(if_match, etag, true)) return { status: 412, body: none };
  } else {
    const since_ms = dateOf(headers['if-unmodified-since']);
    if (since_ms !== undefined && modified_ms !== undefined && modified_ms > since_ms)
      return { status: 412, body: none };
  }
  // Steps 3 and 4.
  const if_none_match = headers['if-none-match'];
  if (if_none_match !== undefined) {
    if (tagListHolds(if_none_match, etag, false)) return { ...common, status: 304, body: none };
  } else {
    const since_ms = dateOf(headers['if-modified-since']);
    if (since_ms !== undefined && modified_ms !== undefined && modified_ms <= since_ms)
      return { ...common, status: 304, body: none };
  }
  // Step 5, and 14.2: a server ignores Range on other methods than GET.
  const range = method === 'GET' ? headers['range'] : undefined;
  const if_range = headers['if-range'];
  const rangeHolds =
    if_range === undefined || (if_range.includes('"') ? if_range === etag : dateOf(if_range) === modified_ms);
  const whole: ModelAnswer = { ...common, status: 200, body: method === 'HEAD' ? none : bytes };
  if (
    range === undefined ||
    !rangeHolds ||
    (if_range !== undefined && !if_range.includes('"') && modified_ms === undefined)
  )
    return whole;
  const span = spanOf(range, bytes.length);
  if (span === 'ignored') return whole;
  if (span === 'unsatisfiable') return { status: 416, body: none, content_range: `bytes */${bytes.length}` };
  const [first, last] = span;
  return {
    ...common,
    status: 206,
    body: bytes.subarray(first, last + 1),
    content_range: `bytes ${first}-${last}/${bytes.length}`,
  };
}

function spanOf(range: string, size: number): 'ignored' | 'unsatisfiable' | [number, number] {
  const [, list] = /^bytes=(.*)$/i.exec(range) ?? [];
  if (list === undefined) return 'ignored';
  const members = list.split(',').map((member, index, all) => {
    const before = index > 0 ? member.replace(/^[\t ]+/, '') : member;
    return index < all.length - 1 ? before.replace(/[\t ]+$/, '') : before;
  });
  const specs = members.filter((member) => member !== '');
  if (specs.length !== 1) return 'ignored';
  const [, first, last] = /^(\d*)-(\d*)$/.exec(specs[0]!) ?? [];
  if (first === undefined || last === undefined || (first === '' && last === '')) return 'ignored';
  if (first === '') {
    const length = BigInt(last);
    if (length === 0n) return 'unsatisfiable';
    return [length >= BigInt(size) ? 0 : size - Number(length), size - 1];
  }
  if (last !== '' && BigInt(last) < BigInt(first)) return 'ignored';
  if (BigInt(first) >= BigInt(size)) return 'unsatisfiable';
  return [Number(first), last === '' || BigInt(last) >= BigInt(size) ? size - 1 : Number(last)];
}

const TAG = /^(W\/)?("[\x21\x23-\x7e\x80-\xff]*")$/;

function tagListHolds(list: string, etag: string, isStrong: boolean): boolean {
  if (list === '*') return true;
  // Tags contain no comma in these tests, so the list can be split.
  const members = list
    .split(',')
    .map((member) => member.replace(/^[\t ]+|[\t ]+$/g, ''))
    .filter((member) => member !== '');
  const tags = members.map((member) => TAG.exec(member));
  if (tags.includes(null)) return false;
  return tags.some((tag) => tag![2] === etag && !(isStrong && tag![1] !== undefined));
}

/** Tests use the preferred form only. */
function dateOf(text: string | undefined): number | undefined {
  if (text === undefined || new Date(Date.parse(text)).toUTCString() !== text) return undefined;
  return Date.parse(text);
}

function choose(
  accept: string | undefined,
  { identity, stored }: Representation,
): (Coded & { coding?: string }) | undefined {
  if (stored === undefined || accept === undefined) return identity;
  const weights = new Map<string, number>();
  for (const member of accept.split(',')) {
    const [, name, weight] = /^\s*([\w*-]+)\s*(?:;\s*q=([\d.]+))?\s*$/i.exec(member) ?? [];
    if (name !== undefined) weights.set(name.toLowerCase(), weight === undefined ? 1 : Number(weight));
  }
  const any = weights.get('*');
  const ofStored = weights.get(stored.coding) ?? any ?? 0;
  const ofIdentity = weights.get('identity') ?? any ?? 0.0001;
  if (ofStored === 0 && ofIdentity === 0) return undefined;
  return ofStored >= ofIdentity ? stored : identity;
}
