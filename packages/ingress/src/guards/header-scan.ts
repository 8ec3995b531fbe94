/**
 * One pass over the raw header lines, for the few headers that matter before routing.
 *
 * Contract: finds headers in any case, counts those that must be unique, and allocates nothing: the view is filled in
 * place and is valid until the next scan. `req.headers`, which Node builds lazily, is not touched.
 */
export interface HeaderView {
  host: string | undefined;
  host_count: number;
  corr_id: string | undefined;
  authorization: string | undefined;
  authorization_count: number;
  if_none_match: string | undefined;
  /** All lines of the name, joined. */
  accept_encoding: string | undefined;
  /** All lines of the name, joined. */
  origin: string | undefined;
  /** Any of Range, If-Range, If-Match, If-Modified-Since, If-Unmodified-Since, or a second If-None-Match. */
  conditional: boolean;
  content_length: string | undefined;
  content_length_count: number;
  /** The value of the last line. The count must be 1 as well for it to frame a body. */
  transfer_encoding: string | undefined;
  transfer_encoding_count: number;
  /** All lines of the name, joined. */
  content_type: string | undefined;
  /** All lines of the name, joined. */
  content_encoding: string | undefined;
  expect: boolean;
  upgrade: boolean;
  /** Whether the client shortens the budget: Request-Timeout or Deadline. */
  has_budget: boolean;
}

export function newHeaderView(): HeaderView {
  return {
    host: undefined,
    host_count: 0,
    corr_id: undefined,
    authorization: undefined,
    authorization_count: 0,
    if_none_match: undefined,
    accept_encoding: undefined,
    origin: undefined,
    conditional: false,
    content_length: undefined,
    content_length_count: 0,
    transfer_encoding: undefined,
    transfer_encoding_count: 0,
    content_type: undefined,
    content_encoding: undefined,
    expect: false,
    upgrade: false,
    has_budget: false,
  };
}

/** `name` in any case against `lower`, which is in lower case and of the same length. */
function is(name: string, lower: string): boolean {
  return name === lower || name.toLowerCase() === lower;
}

function joined(before: string | undefined, value: string): string {
  return before === undefined ? value : `${before}, ${value}`;
}

/** Reads all headers into `view`, which is overwritten. */
export function scanHeaders(raw: readonly string[], view: HeaderView): void {
  view.host = view.corr_id = view.authorization = view.if_none_match = view.accept_encoding = view.origin = undefined;
  view.content_length = view.transfer_encoding = view.content_type = view.content_encoding = undefined;
  view.host_count = view.authorization_count = 0;
  view.content_length_count = view.transfer_encoding_count = 0;
  view.conditional = view.expect = view.upgrade = view.has_budget = false;
  for (let i = 0; i < raw.length; i += 2) scanHeader(raw[i]!, raw[i + 1]!, view);
}

/** Compares the length of the name first: one comparison dismisses most headers of a request. */
function scanHeader(name: string, value: string, view: HeaderView): void {
  switch (name.length) {
    case 4:
      if (is(name, 'host')) {
        view.host = value;
        view.host_count += 1;
      }
      break;
    case 5:
      if (is(name, 'range')) view.conditional = true;
      break;
    case 6:
      if (is(name, 'expect')) view.expect = true;
      else if (is(name, 'origin')) view.origin = joined(view.origin, value);
      break;
    case 7:
      if (is(name, 'upgrade')) view.upgrade = true;
      break;
    case 8:
      if (is(name, 'if-match') || is(name, 'if-range')) view.conditional = true;
      else if (is(name, 'deadline')) view.has_budget = true;
      break;
    case 9:
      if (is(name, 'x-corr-id')) view.corr_id = value;
      break;
    case 12:
      if (is(name, 'content-type')) view.content_type = joined(view.content_type, value);
      break;
    case 13:
      if (is(name, 'authorization')) {
        view.authorization = value;
        view.authorization_count += 1;
      } else if (is(name, 'if-none-match')) {
        if (view.if_none_match !== undefined) view.conditional = true;
        view.if_none_match = value;
      }
      break;
    case 14:
      if (is(name, 'content-length')) {
        view.content_length = value;
        view.content_length_count += 1;
      }
      break;
    case 15:
      if (is(name, 'accept-encoding')) view.accept_encoding = joined(view.accept_encoding, value);
      else if (is(name, 'request-timeout')) view.has_budget = true;
      break;
    case 16:
      if (is(name, 'content-encoding')) view.content_encoding = joined(view.content_encoding, value);
      break;
    case 17:
      if (is(name, 'transfer-encoding')) {
        view.transfer_encoding = value;
        view.transfer_encoding_count += 1;
      } else if (is(name, 'if-modified-since')) view.conditional = true;
      break;
    case 19:
      if (is(name, 'if-unmodified-since')) view.conditional = true;
      break;
  }
}

/** The values of all lines with this name, in order. */
export function valuesOf(raw: readonly string[], name: string): string[] {
  const lower = name.toLowerCase();
  const values: string[] = [];
  for (let i = 0; i < raw.length; i += 2)
    if (raw[i]!.length === lower.length && is(raw[i]!, lower)) values.push(raw[i + 1]!);
  return values;
}
