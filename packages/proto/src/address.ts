/**
 * The address of bytes: `b3:` and the BLAKE3-256 hash in 64 lower-case hex digits.
 *
 * Contract: a value of type `Address` has exactly this form, so two addresses are equal if their strings are. There is one
 * spelling: no upper case, no white space, no short form. Functions that take client input do not throw.
 * Bound: 67 characters; longer input is refused by its length.
 */

declare const brand: unique symbol;

/** A checked string. Only the functions of this file create one. */
export type Address = string & { readonly [brand]: 'Address' };

export const ADDRESS_PREFIX = 'b3:';
export const ADDRESS_HASH_BYTES = 32;
export const ADDRESS_CHARS = ADDRESS_PREFIX.length + 2 * ADDRESS_HASH_BYTES;
/** The same rule as a regular expression source, for JSON schemas. */
export const ADDRESS_PATTERN = '^b3:[0-9a-f]{64}$';

export type AddressResult =
  | { readonly ok: true; readonly address: Address }
  | { readonly ok: false; readonly problem: string };

const WANTED = 'an address is "b3:" and 64 lower-case hex digits';

/** The address in `input`, or undefined. For hot paths; `checkAddress` returns the reason. */
export function parseAddress(input: unknown): Address | undefined {
  return isAddress(input) ? input : undefined;
}

export function isAddress(input: unknown): input is Address {
  if (typeof input !== 'string' || input.length !== ADDRESS_CHARS) return false;
  if (!input.startsWith(ADDRESS_PREFIX)) return false;
  for (let at = ADDRESS_PREFIX.length; at < ADDRESS_CHARS; at++) {
    if (!isHexDigit(input.charCodeAt(at))) return false;
  }
  return true;
}

/** As `parseAddress`, with a reason for the client. The reason never repeats the input. */
export function checkAddress(input: unknown): AddressResult {
  if (isAddress(input)) return { ok: true, address: input };
  return { ok: false, problem: `${WANTED}; ${whatIsWrong(input)}` };
}

/** The address of a hash. Throws a RangeError unless it has 32 bytes: that is a defect of the caller. */
export function formatAddress(hash: Uint8Array): Address {
  if (hash.length !== ADDRESS_HASH_BYTES)
    throw new RangeError(`a hash has ${ADDRESS_HASH_BYTES} bytes, this one has ${hash.length}`);
  return `${ADDRESS_PREFIX}${hash.toHex()}` as Address;
}

/** The 32 bytes of the hash. */
export function addressBytes(address: Address): Uint8Array<ArrayBuffer> {
  return Uint8Array.fromHex(addressHex(address));
}

/** The 64 hex digits without the prefix. */
export function addressHex(address: Address): string {
  return address.slice(ADDRESS_PREFIX.length);
}

/** Whether both are valid addresses and equal. An invalid address is not equal to itself. */
export function sameAddress(left: unknown, right: unknown): boolean {
  return left === right && isAddress(left);
}

function isHexDigit(code: number): boolean {
  return (code >= 0x30 && code <= 0x39) || (code >= 0x61 && code <= 0x66);
}

function whatIsWrong(input: unknown): string {
  if (typeof input !== 'string') return `this is ${input === null ? 'null' : typeof input}, not a string`;
  if (!input.startsWith(ADDRESS_PREFIX)) return 'this does not begin with "b3:"';
  if (input.length !== ADDRESS_CHARS) return `this has ${input.length - ADDRESS_PREFIX.length} characters after "b3:"`;
  for (let at = ADDRESS_PREFIX.length; at < ADDRESS_CHARS; at++) {
    const code = input.charCodeAt(at);
    if (isHexDigit(code)) continue;
    const upper = code >= 0x41 && code <= 0x46;
    return upper ? `there is upper case at character ${at + 1}` : `character ${at + 1} is not a hex digit`;
  }
  return 'this is a valid address';
}
