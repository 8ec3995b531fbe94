/** Base32 of RFC 4648 in lower case without padding, as CIDs and the DHT keys of names use it. */
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';

export function toBase32(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let value = 0;
  for (const byte of bytes) {
    value = (value << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(value >>> bits) & 31];
    }
    value &= (1 << bits) - 1;
  }
  return bits === 0 ? text : text + ALPHABET[(value << (5 - bits)) & 31];
}

/** Undefined unless `text` is the one spelling of some bytes: no other character, no superfluous one, no bit left over. */
export function fromBase32(text: string): Uint8Array<ArrayBuffer> | undefined {
  const bytes = new Uint8Array(Math.floor((text.length * 5) / 8));
  let at = 0;
  let bits = 0;
  let value = 0;
  for (const char of text) {
    const digit = ALPHABET.indexOf(char);
    if (digit < 0) return undefined;
    value = (value << 5) | digit;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = value >>> bits;
    value &= (1 << bits) - 1;
  }
  return bits >= 5 || value !== 0 ? undefined : bytes;
}
