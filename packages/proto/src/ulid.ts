/**
 * ULIDs: 16 bytes as 26 characters of Crockford base32, upper case.
 *
 * Contract: each ULID has one spelling, so two are equal if their strings are. `isUlid` takes client input and never throws.
 * Bound: 26 characters; other lengths are refused at once.
 */

export const ULID_BYTES = 16;
const ULID_CHARS = 26;
/** The first character holds three bits. */
export const ULID_PATTERN = '^[0-7][0-9A-HJKMNP-TV-Z]{25}$';

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const ULID = new RegExp(ULID_PATTERN);
const VALUES = new Int8Array(128).fill(-1);
for (let value = 0; value < ALPHABET.length; value++) VALUES[ALPHABET.charCodeAt(value)] = value;

export function isUlid(input: unknown): input is string {
  return typeof input === 'string' && input.length === ULID_CHARS && ULID.test(input);
}

/** The 16 bytes of a valid ULID. */
export function ulidBytes(ulid: string): Uint8Array<ArrayBuffer> {
  if (!isUlid(ulid)) throw new RangeError('not a ULID');
  const bytes = new Uint8Array(ULID_BYTES);
  // 26 characters hold 130 bits; the first two are zero.
  let bits = VALUES[ulid.charCodeAt(0)]!;
  let bit_count = 3;
  let at = 0;
  for (let index = 1; index < ULID_CHARS; index++) {
    bits = (bits << 5) | VALUES[ulid.charCodeAt(index)]!;
    bit_count += 5;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes[at++] = bits >> bit_count;
    bits &= (1 << bit_count) - 1;
  }
  return bytes;
}

/** The ULID of 16 bytes. Throws a RangeError for any other length: that is a defect of the caller. */
export function formatUlid(bytes: Uint8Array): string {
  if (bytes.length !== ULID_BYTES) throw new RangeError(`a ULID has ${ULID_BYTES} bytes, this one has ${bytes.length}`);
  let text = '';
  let bits = 0;
  let bit_count = 2;
  for (const byte of bytes) {
    bits = (bits << 8) | byte;
    bit_count += 8;
    while (bit_count >= 5) {
      bit_count -= 5;
      text += ALPHABET[bits >> bit_count]!;
      bits &= (1 << bit_count) - 1;
    }
  }
  return text;
}
