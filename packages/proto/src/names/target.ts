/**
 * The subjects of lookups: an address, the name of a trusted key, or the name of a given key.
 *
 *     b3:<hex>    name:<label>    name:<label>@<key hex>
 *
 * Contract: each target has one spelling, so caches and single flights can use the text as their key.
 */
import { checkAddress, ADDRESS_PREFIX, type Address } from '../address.ts';
import { checkLabel, isNameKey } from './label.ts';

export const NAME_PREFIX = 'name:';

export type Target =
  | { readonly kind: 'address'; readonly address: Address }
  /** Without a key, the trust list of the node decides. */
  | { readonly kind: 'name'; readonly label: string; readonly key: string | undefined };

export type TargetResult =
  | { readonly ok: true; readonly target: Target }
  | { readonly ok: false; readonly problem: string };

/** The target in `input`, or the reason why it is none. The reason never repeats the input. */
export function checkTarget(input: unknown): TargetResult {
  if (typeof input !== 'string') return { ok: false, problem: 'a target is a string' };
  if (input.startsWith(ADDRESS_PREFIX)) {
    const result = checkAddress(input);
    return result.ok ? { ok: true, target: { kind: 'address', address: result.address } } : result;
  }
  if (!input.startsWith(NAME_PREFIX)) {
    return { ok: false, problem: 'a target is "b3:" and 64 hex digits, or "name:" and a label, with "@" and a key' };
  }
  return checkName(input.slice(NAME_PREFIX.length));
}

/** As `checkTarget`, for a name without `name:`: `<label>` or `<label>@<key hex>`. */
export function checkName(text: string): TargetResult {
  const at = text.indexOf('@');
  const result = checkLabel(at < 0 ? text : text.slice(0, at));
  if (!result.ok) return result;
  if (at < 0) return { ok: true, target: { kind: 'name', label: result.label, key: undefined } };
  const key = text.slice(at + 1);
  if (!isNameKey(key)) return { ok: false, problem: 'the key after "@" must have 64 lower-case hex digits' };
  return { ok: true, target: { kind: 'name', label: result.label, key } };
}

export function formatTarget(target: Target): string {
  if (target.kind === 'address') return target.address;
  return NAME_PREFIX + formatName(target.label, target.key);
}

/** `<label>` or `<label>@<key hex>`. */
export function formatName(label: string, key: string | undefined): string {
  return key === undefined ? label : `${label}@${key}`;
}
