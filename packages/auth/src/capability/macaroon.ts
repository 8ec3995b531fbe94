/**
 * Macaroons: the public libmacaroons v2 binary format and its chain of HMAC-SHA256 signatures.
 *
 * Contract: `encodeMacaroon` writes the same bytes as other implementations, and `decodeMacaroon` accepts exactly one
 * encoding of each macaroon. It never throws on external bytes: it returns the macaroon or the reason.
 * Bound: `CAPABILITY_LIMITS`, checked before anything is copied.
 *
 *   2 | [location] identifier EOS | ([location] identifier [vid] EOS)* | EOS | signature
 *       field = type byte, length as varint, content; EOS = one zero byte
 *
 *   sig(0) = HMAC(HMAC("macaroons-key-generator", root key), identifier)
 *   sig(n) = HMAC(sig(n-1), caveat n)                     the last one is the macaroon's signature
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { inspect } from 'node:util';
import { CAPABILITY_LIMITS as LIMITS } from './limits.ts';

const VERSION = 2;
const FIELD_EOS = 0;
const FIELD_LOCATION = 1;
const FIELD_IDENTIFIER = 2;
const FIELD_VID = 4;
const FIELD_SIGNATURE = 6;
const SIGNATURE_BYTES = 32;
/** Two varint bytes hold 14 bits, more than any length that a limit allows. */
const VARINT_BYTES_MAX = 2;
/** Of any length that fits into 32 bits. */
const LENGTH_BYTES_MAX = 5;
const KEY_GENERATOR = 'macaroons-key-generator';
const NOTHING = new Uint8Array(0);

export interface MacaroonCaveat {
  readonly identifier: Uint8Array;
  /** Present on third-party caveats only. */
  readonly vid?: Uint8Array | undefined;
  readonly location?: string | undefined;
}

interface MacaroonInit {
  identifier: Uint8Array;
  caveats: readonly MacaroonCaveat[];
  signature: Uint8Array;
  location?: string | undefined;
}

/** Immutable. The signature makes it a bearer secret, so it is never logged. */
export class Macaroon {
  readonly location: string | undefined;
  readonly identifier: Uint8Array;
  readonly caveats: readonly MacaroonCaveat[];
  readonly #signature: Uint8Array;

  constructor(init: MacaroonInit) {
    this.location = init.location;
    this.identifier = init.identifier;
    this.caveats = init.caveats;
    this.#signature = init.signature;
  }

  get signature(): Uint8Array {
    return this.#signature;
  }

  toJSON(): string {
    return `Macaroon(${this.caveats.length} caveats)`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}

export type Decoded<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly reason: string };

/** A macaroon without caveats, signed with the root key. `location` is a hint that no signature covers. */
export function newMacaroon(rootKey: Uint8Array, identifier: Uint8Array, location?: string): Macaroon {
  return new Macaroon({ identifier, caveats: [], signature: firstSignature(rootKey, identifier), location });
}

/** The macaroon with one more first-party caveat. Needs no key: the holder of a macaroon can narrow it. */
export function addCaveat(macaroon: Macaroon, caveat: Uint8Array): Macaroon {
  return new Macaroon({
    identifier: macaroon.identifier,
    caveats: [...macaroon.caveats, { identifier: caveat }],
    signature: hmac(macaroon.signature, caveat),
    location: macaroon.location,
  });
}

/**
 * Whether the signature follows from the root key. Always walks the whole chain and compares in constant time.
 * Third-party caveats cannot be discharged here, so a macaroon with one never verifies.
 * `onLink` receives the signature after each caveat. It is as powerful as a macaroon and must not be stored.
 */
export function verifyChain(
  macaroon: Macaroon,
  rootKey: Uint8Array,
  onLink?: (index: number, signature: Uint8Array) => void,
): boolean {
  let signature = firstSignature(rootKey, macaroon.identifier);
  let thirdParty = false;
  for (const [index, caveat] of macaroon.caveats.entries()) {
    if (caveat.vid !== undefined) thirdParty = true;
    const next = hmac(signature, caveat.identifier);
    signature.fill(0);
    signature = next;
    onLink?.(index, signature);
  }
  const same = timingSafeEqual(signature, macaroon.signature);
  signature.fill(0);
  return same && !thirdParty;
}

export function encodeMacaroon(macaroon: Macaroon): Uint8Array<ArrayBuffer> {
  const writer = new Writer(encodedBytes(macaroon));
  writer.byte(VERSION);
  writer.location(macaroon.location);
  writer.field(FIELD_IDENTIFIER, macaroon.identifier);
  writer.byte(FIELD_EOS);
  for (const { location, identifier, vid } of macaroon.caveats) {
    writer.location(location);
    writer.field(FIELD_IDENTIFIER, identifier);
    if (vid !== undefined) writer.field(FIELD_VID, vid);
    writer.byte(FIELD_EOS);
  }
  writer.byte(FIELD_EOS);
  writer.field(FIELD_SIGNATURE, macaroon.signature);
  return writer.bytes();
}

/** Reads one macaroon that fills `bytes` exactly. The result refers to `bytes`: do not change them afterwards. */
export function decodeMacaroon(bytes: Uint8Array): Decoded<Macaroon> {
  if (bytes.length > LIMITS.token_bytes_max) {
    return { ok: false, reason: `it has ${bytes.length} bytes, the limit is ${LIMITS.token_bytes_max}` };
  }
  const reader = new Reader(bytes);
  reader.version();
  const location = reader.location();
  const identifier = reader.field(FIELD_IDENTIFIER, LIMITS.identifier_bytes_max, 'identifier');
  reader.endOfSection();
  const caveats: MacaroonCaveat[] = [];
  while (reader.problem === undefined && !reader.takes(FIELD_EOS)) {
    caveats.push(readCaveat(reader));
    if (caveats.length > LIMITS.caveats_max) reader.refuse(`it has more than ${LIMITS.caveats_max} caveats`);
  }
  const signature = reader.field(FIELD_SIGNATURE, SIGNATURE_BYTES, 'signature');
  if (signature.length !== SIGNATURE_BYTES) reader.refuse('its signature does not have 32 bytes');
  if (!reader.atEnd) reader.refuse('bytes follow its signature');
  if (reader.problem !== undefined) return { ok: false, reason: reader.problem };
  return { ok: true, value: new Macaroon({ location, identifier, caveats, signature }) };
}

function readCaveat(reader: Reader): MacaroonCaveat {
  const location = reader.location();
  const identifier = reader.field(FIELD_IDENTIFIER, LIMITS.caveat_bytes_max, 'caveat');
  const isThirdParty = reader.sees(FIELD_VID);
  const vid = isThirdParty ? reader.field(FIELD_VID, LIMITS.caveat_bytes_max, 'verification id') : undefined;
  if (isThirdParty && vid?.length === 0) reader.refuse('a verification id is empty');
  reader.endOfSection();
  return { identifier, vid, location };
}

/** A cursor that keeps its first error: later reads return nothing, so that callers need no error branches. */
class Reader {
  problem: string | undefined;
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  refuse(problem: string): void {
    this.problem ??= problem;
  }

  version(): void {
    if (this.#byte() !== VERSION) this.refuse('it is not a macaroon of version 2');
  }

  endOfSection(): void {
    if (!this.takes(FIELD_EOS)) this.refuse('its fields are out of order');
  }

  sees(type: number): boolean {
    return this.problem === undefined && this.#bytes[this.#at] === type;
  }

  takes(type: number): boolean {
    if (!this.sees(type)) return false;
    this.#at += 1;
    return true;
  }

  location(): string | undefined {
    if (!this.sees(FIELD_LOCATION)) return undefined;
    const bytes = this.field(FIELD_LOCATION, LIMITS.location_bytes_max, 'location');
    const text = readUtf8(bytes);
    if (text === undefined) this.refuse('a location is not UTF-8');
    // An absent location is encoded by omitting the field, so an empty one would be a second encoding.
    if (text === '') this.refuse('a location is empty');
    return text;
  }

  field(type: number, bytes_max: number, name: string): Uint8Array {
    if (!this.takes(type)) {
      this.refuse(`its fields are out of order: the ${name} is missing`);
      return NOTHING;
    }
    const length = this.#varint();
    if (length > bytes_max) this.refuse(`its ${name} has ${length} bytes, the limit is ${bytes_max}`);
    if (length > this.#bytes.length - this.#at) this.refuse('it is truncated');
    if (this.problem !== undefined) return NOTHING;
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  #byte(): number | undefined {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) this.refuse('it is truncated');
    else this.#at += 1;
    return byte;
  }

  #varint(): number {
    let value = 0;
    for (let index = 0; index < VARINT_BYTES_MAX; index++) {
      const byte = this.#byte();
      if (byte === undefined) return 0;
      value += (byte & 0x7f) << (7 * index);
      if (byte >= 0x80) continue;
      if (byte === 0 && index > 0) this.refuse('a length is padded');
      return value;
    }
    this.refuse('a length is too large');
    return 0;
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The text of well-formed UTF-8, or undefined. */
export function readUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

function firstSignature(rootKey: Uint8Array, identifier: Uint8Array): Buffer {
  const key = hmac(KEY_GENERATOR, rootKey);
  const signature = hmac(key, identifier);
  key.fill(0);
  return signature;
}

function hmac(key: Uint8Array | string, data: Uint8Array): Buffer {
  return createHmac('sha256', key).update(data).digest();
}

/** The largest length of the encoded macaroon: each byte of a varint holds 7 bits of the length of its field. */
function encodedBytes({ location, identifier, caveats, signature }: Macaroon): number {
  let bytes = 3 + locationBytes(location) + fieldBytes(identifier) + fieldBytes(signature);
  for (const { location: place, identifier: text, vid } of caveats)
    bytes += 1 + locationBytes(place) + fieldBytes(text) + (vid === undefined ? 0 : fieldBytes(vid));
  return bytes;
}

const fieldBytes = ({ length }: Uint8Array): number => 1 + LENGTH_BYTES_MAX + length;
const locationBytes = (location = ''): number => 1 + LENGTH_BYTES_MAX + Buffer.byteLength(location);

/** Writes into one buffer: capabilities are encoded for each internal call. */
class Writer {
  readonly #buffer: Buffer<ArrayBuffer>;
  #at = 0;

  constructor(bytes_max: number) {
    this.#buffer = Buffer.allocUnsafe(bytes_max);
  }

  byte(value: number): void {
    this.#buffer[this.#at++] = value;
  }

  location(location: string | undefined): void {
    if (location !== undefined && location !== '') this.field(FIELD_LOCATION, Buffer.from(location));
  }

  field(type: number, content: Uint8Array): void {
    this.byte(type);
    let length = content.length;
    for (; length >= 0x80; length >>>= 7) this.byte((length & 0x7f) | 0x80);
    this.byte(length);
    this.#buffer.set(content, this.#at);
    this.#at += content.length;
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return this.#buffer.subarray(0, this.#at);
  }
}
