/**
 * HKDF-Expand of RFC 5869 over an HMAC-SHA256 that a token may compute. The key is used as the pseudorandom key: keys are
 * uniformly random, so the extract step adds nothing (section 3.3). Software and tokens therefore derive the same bytes.
 *
 * The info is `ron-kms/derive/v1\n<label>`, so that no label collides with another use of the key.
 */
const HASH_BYTES = 32;

export type Hmac = (data: Uint8Array) => Uint8Array | Promise<Uint8Array>;

export function expand(hmac: Hmac, label: string, bytes: number): Promise<Uint8Array> {
  return expandInfo(hmac, Buffer.from(`ron-kms/derive/v1\n${label}`), bytes);
}

export async function expandInfo(hmac: Hmac, info: Uint8Array, bytes: number): Promise<Uint8Array> {
  const output = new Uint8Array(bytes);
  let block: Uint8Array = new Uint8Array(0);
  for (let at = 0, counter = 1; at < bytes; at += HASH_BYTES, counter += 1) {
    const input = Buffer.concat([block, info, Uint8Array.of(counter)]);
    block.fill(0);
    block = await hmac(input);
    input.fill(0);
    output.set(block.subarray(0, Math.min(HASH_BYTES, bytes - at)), at);
  }
  block.fill(0);
  return output;
}
