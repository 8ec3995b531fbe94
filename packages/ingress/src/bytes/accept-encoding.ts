/**
 * Content negotiation by `Accept-Encoding` (RFC 9110, 12.5.3).
 *
 * Contract: `qualityOf` returns the weight of a content coding, 0 to 1; `identity` is acceptable unless it, or `*`, has the
 * weight 0. An absent header accepts all codings; an empty one accepts `identity` only. Malformed members are ignored.
 * `chooseVariant` returns the variant of the highest weight, the earlier one on a tie; without the header it returns the
 * uncoded variant if there is one, because a client that does not mention codings often cannot decode them. Undefined:
 * none is acceptable.
 * Bound: one pass over the header for each variant. Never throws.
 *
 *   const chosen = chooseVariant([{ encoding: 'br' }, { encoding: 'gzip' }, {}], req.headers['accept-encoding']);
 *   if (chosen === undefined) throw new RonError('not_acceptable', '...');
 */

export interface Variant {
  /** The content coding, in lower case: `gzip`, `br`, `zstd`. Undefined: none. */
  readonly encoding?: string | undefined;
}

const IDENTITY = 'identity';
const MEMBER = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t ]*(?:;[\t ]*[qQ]=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?))?$/;

export function chooseVariant<V extends Variant>(variants: readonly V[], header: string | undefined): V | undefined {
  if (header === undefined) return variants.find(({ encoding }) => encoding === undefined) ?? variants[0];
  let best: V | undefined;
  let best_quality = 0;
  for (const variant of variants) {
    const quality = qualityOf(variant.encoding, header);
    if (quality > best_quality) {
      best = variant;
      best_quality = quality;
    }
  }
  return best;
}

/** `encoding` undefined means no coding. */
export function qualityOf(encoding: string | undefined, header: string | undefined): number {
  if (header === undefined) return 1;
  const wanted = encoding ?? IDENTITY;
  let any: number | undefined;
  for (const text of header.split(',')) {
    const member = MEMBER.exec(text.trim());
    if (member === null) continue;
    const coding = codingOf(member[1]!);
    const quality = member[2] === undefined ? 1 : Number(member[2]);
    if (coding === wanted) return quality;
    if (coding === '*') any = quality;
  }
  if (any !== undefined) return any;
  return wanted === IDENTITY ? IDENTITY_QUALITY : 0;
}

/** Unlisted and not excluded: acceptable, but any listed coding is preferred. */
const IDENTITY_QUALITY = 0.0001;

/** `x-gzip` and `x-compress` are aliases of the same codings. */
function codingOf(name: string): string {
  const lower = name.toLowerCase();
  return lower === 'x-gzip' || lower === 'x-compress' ? lower.slice(2) : lower;
}
