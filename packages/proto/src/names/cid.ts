/**
 * Addresses as CIDs, for clients of Delegated Routing: CIDv1, codec `raw`, BLAKE3 with 32 bytes, in base32: `bafkr4i...`.
 *
 * Contract: each address has one CID. Functions that take client input do not throw.
 * Bound: `CID_CHARS_MAX` characters; longer input is refused by its length.
 */
import { addressBytes, formatAddress, ADDRESS_HASH_BYTES, type Address } from '../address.ts';
import { fromBase32, toBase32 } from './base32.ts';

/** Version 1, codec raw, BLAKE3, 32 bytes. */
const HEADER = Uint8Array.of(0x01, 0x55, 0x1e, ADDRESS_HASH_BYTES);
const CID_CHARS_MAX = 256;
const BASE32 = 'b';
const WANTED = 'the CID of an object is CIDv1, codec raw, hash BLAKE3 with 32 bytes, in base32 ("bafkr4i...")';

export type CidResult =
  | { readonly ok: true; readonly address: Address }
  | { readonly ok: false; readonly problem: string };

export function addressToCid(address: Address): string {
  const bytes = new Uint8Array(HEADER.length + ADDRESS_HASH_BYTES);
  bytes.set(HEADER);
  bytes.set(addressBytes(address), HEADER.length);
  return BASE32 + toBase32(bytes);
}

/** The address of a CID, or the reason why it has none. The reason never repeats the input. */
export function checkCid(input: unknown): CidResult {
  if (typeof input !== 'string') return refused('this is not a string');
  if (input.length > CID_CHARS_MAX) return refused(`this has more than ${CID_CHARS_MAX} characters`);
  if (input.startsWith('Qm')) return refused('this is a CIDv0');
  if (!input.startsWith(BASE32)) return refused('this does not begin with "b", the prefix of base32');
  const bytes = fromBase32(input.slice(BASE32.length));
  if (bytes === undefined) return refused('this is not valid base32 in lower case without padding');
  const problem = headerProblem(bytes);
  if (problem !== undefined) return refused(problem);
  return { ok: true, address: formatAddress(bytes.subarray(HEADER.length)) };
}

function headerProblem(bytes: Uint8Array): string | undefined {
  const [version, codec, hash, length] = bytes;
  if (version !== HEADER[0]) return 'the version is not 1';
  if (codec !== HEADER[1]) return 'the codec is not raw (0x55)';
  if (hash !== HEADER[2]) return 'the hash is not BLAKE3 (0x1e)';
  if (length !== HEADER[3] || bytes.length !== HEADER.length + ADDRESS_HASH_BYTES)
    return 'the hash does not have 32 bytes';
  return undefined;
}

const refused = (problem: string): CidResult => ({ ok: false, problem: `${WANTED}; ${problem}` });
