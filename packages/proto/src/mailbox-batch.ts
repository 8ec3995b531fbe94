/**
 * `application/x-ron-batch`: messages with their payloads as they are, for sends and receives.
 *
 *     "RONB", then for each message: u32 head bytes, u32 payload bytes, head (a JSON object in UTF-8), payload
 *
 * Contract: integers are big-endian. The batch ends with the body that carries it. The decoder accepts the bytes in pieces of
 * any size. It compares each length with the limits and with the bytes that can still follow before it allocates memory for
 * the message. It checks the framing and that each head is a JSON object; the fields of a head are checked by its user.
 * A malformed batch throws a `BatchError`, whose message never repeats the input.
 * Bound: the decoder holds one message besides those that it returned. A payload may be a view of the given bytes, which must
 * not change while it is used.
 *
 *     const decoder = new BatchDecoder(RECEIVE_BATCH);
 *     for await (const piece of body) for (const { head, payload } of decoder.push(piece)) use(head, payload);
 *     decoder.end();
 */
import { MAILBOX_LIMITS } from './mailbox-api.ts';

export const BATCH_MEDIA_TYPE = 'application/x-ron-batch';

export interface BatchItem {
  readonly head: object;
  readonly payload: Uint8Array;
}

export interface BatchLimits {
  readonly messages: number;
  readonly head_bytes: number;
  readonly payload_bytes: number;
  /** Of the whole batch, or the length of the body if it is known. */
  readonly total_bytes: number;
}

/** Headers, keys and topic with the escapes of JSON. */
const HEAD_BYTES_MAX = 64 * 1024;
const { batch_messages, batch_bytes, message_bytes, receive_bytes_max } = MAILBOX_LIMITS;

export const SEND_BATCH: BatchLimits = {
  messages: batch_messages,
  head_bytes: HEAD_BYTES_MAX,
  payload_bytes: message_bytes,
  total_bytes: batch_bytes,
};
export const RECEIVE_BATCH: BatchLimits = {
  messages: batch_messages,
  head_bytes: HEAD_BYTES_MAX,
  payload_bytes: message_bytes,
  total_bytes: receive_bytes_max + batch_messages * HEAD_BYTES_MAX,
};

export class BatchError extends Error {}

/** The batch is whole, but a payload in it is larger than the limit of a message. */
export class PayloadSizeError extends BatchError {}

const MAGIC = 0x524f4e42;
const MAGIC_BYTES = 4;
const LENGTHS_BYTES = 8;
/** The shortest JSON object. */
const HEAD_BYTES_MIN = 2;
/** Larger payloads are not copied into the buffer of the heads. */
const COPIED_BYTES_MAX = 64 * 1024;

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true });

/** The batch in pieces, to be sent in this order. Large payloads are pieces of their own, without a copy. */
export function encodeBatch(items: readonly BatchItem[]): Uint8Array[] {
  const heads = items.map(({ head }) => asciiJson(head));
  const buffer = new Uint8Array(copiedBytes(items, heads));
  const view = new DataView(buffer.buffer);
  const pieces: Uint8Array[] = [];
  view.setUint32(0, MAGIC);
  let at = MAGIC_BYTES;
  let piece_start = 0;
  for (const [index, { payload }] of items.entries()) {
    const head = heads[index]!;
    view.setUint32(at, head.length);
    view.setUint32(at + 4, payload.length);
    at += LENGTHS_BYTES;
    encoder.encodeInto(head, buffer.subarray(at));
    at += head.length;
    if (payload.length <= COPIED_BYTES_MAX) {
      buffer.set(payload, at);
      at += payload.length;
    } else {
      pieces.push(buffer.subarray(piece_start, at), payload);
      piece_start = at;
    }
  }
  if (piece_start < at) pieces.push(buffer.subarray(piece_start, at));
  return pieces;
}

function copiedBytes(items: readonly BatchItem[], heads: readonly string[]): number {
  let bytes = MAGIC_BYTES;
  for (const [index, { payload }] of items.entries()) {
    bytes += LENGTHS_BYTES + heads[index]!.length;
    if (payload.length <= COPIED_BYTES_MAX) bytes += payload.length;
  }
  return bytes;
}

/** One byte for each character, so that the length is known before it is encoded. */
function asciiJson(value: object): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The messages of a batch that is in memory. Payloads are views. */
export function decodeBatch(bytes: Uint8Array, limits: BatchLimits): BatchItem[] {
  if (bytes.length > limits.total_bytes) throw tooLong(limits);
  const batch = new BatchDecoder({ ...limits, total_bytes: bytes.length });
  const items = batch.push(bytes);
  batch.end();
  return items;
}

/** The lengths of the message that is being read. */
interface Lengths {
  readonly head_bytes: number;
  readonly payload_bytes: number;
}

export class BatchDecoder {
  readonly #limits: BatchLimits;
  /** Bytes that may still follow the part that is being read. */
  #left_bytes: number;
  #messages = 0;
  /** The length of the part that is being read: the magic, the lengths of a message, or a message. Never 0. */
  #part_bytes = MAGIC_BYTES;
  #has_magic = false;
  #lengths: Lengths | undefined;
  /** The part so far, if it arrives in pieces. */
  #partial: Uint8Array | undefined;
  #filled = 0;
  #error: BatchError | undefined;

  constructor(limits: BatchLimits) {
    this.#limits = limits;
    this.#left_bytes = limits.total_bytes - MAGIC_BYTES;
  }

  /** The messages that the bytes complete. After an error, each call throws it again. */
  push(bytes: Uint8Array): BatchItem[] {
    if (this.#error !== undefined) throw this.#error;
    const items: BatchItem[] = [];
    try {
      for (let at = 0; at < bytes.length;) {
        const taken = Math.min(this.#part_bytes - this.#filled, bytes.length - at);
        const part = this.#gather(bytes.subarray(at, at + taken));
        at += taken;
        if (part !== undefined) this.#onPart(part, items);
      }
    } catch (error) {
      if (error instanceof BatchError) this.#error = error;
      throw error;
    }
    return items;
  }

  /** The body is complete. Throws if the last message is not. */
  end(): void {
    if (this.#error !== undefined) throw this.#error;
    if (!this.#has_magic) throw new BatchError('the batch does not begin with RONB');
    if (this.#filled > 0 || this.#lengths !== undefined) throw new BatchError('the batch ends within a message');
  }

  /** The whole part once it is complete: a view if it came in one piece. */
  #gather(piece: Uint8Array): Uint8Array | undefined {
    if (this.#partial === undefined && piece.length === this.#part_bytes) return piece;
    this.#partial ??= new Uint8Array(this.#part_bytes);
    this.#partial.set(piece, this.#filled);
    this.#filled += piece.length;
    if (this.#filled < this.#part_bytes) return undefined;
    const part = this.#partial;
    this.#partial = undefined;
    this.#filled = 0;
    return part;
  }

  #onPart(part: Uint8Array, items: BatchItem[]): void {
    if (!this.#has_magic) {
      if (viewOf(part).getUint32(0) !== MAGIC) throw new BatchError('the batch does not begin with RONB');
      this.#has_magic = true;
      this.#expect(LENGTHS_BYTES, undefined);
    } else if (this.#lengths === undefined) {
      const lengths = this.#checked(part);
      this.#expect(lengths.head_bytes + lengths.payload_bytes, lengths);
    } else {
      const { head_bytes } = this.#lengths;
      items.push({ head: headOf(part.subarray(0, head_bytes)), payload: part.subarray(head_bytes) });
      this.#messages += 1;
      this.#expect(LENGTHS_BYTES, undefined);
    }
  }

  #expect(part_bytes: number, lengths: Lengths | undefined): void {
    this.#part_bytes = part_bytes;
    this.#lengths = lengths;
  }

  #checked(part: Uint8Array): Lengths {
    const { messages, head_bytes: head_max, payload_bytes: payload_max } = this.#limits;
    const view = viewOf(part);
    const [head_bytes, payload_bytes] = [view.getUint32(0), view.getUint32(4)];
    if (this.#messages === messages) throw new BatchError(`the batch has more than ${messages} messages`);
    if (head_bytes < HEAD_BYTES_MIN || head_bytes > head_max)
      throw new BatchError(`a head has ${HEAD_BYTES_MIN} to ${head_max} bytes`);
    this.#left_bytes -= LENGTHS_BYTES + head_bytes + payload_bytes;
    if (this.#left_bytes < 0) throw tooLong(this.#limits);
    if (payload_bytes > payload_max)
      throw new PayloadSizeError(`messages/${this.#messages}/payload is larger than ${payload_max} bytes`);
    return { head_bytes, payload_bytes };
  }
}

const tooLong = ({ total_bytes }: BatchLimits): BatchError =>
  new BatchError(`the lengths of the messages exceed the ${total_bytes} bytes of the batch`);

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function headOf(bytes: Uint8Array): object {
  const head = parsed(bytes);
  if (typeof head !== 'object' || head === null || Array.isArray(head))
    throw new BatchError('a head is not a JSON object');
  return head;
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch {
    throw new BatchError('a head is not JSON in UTF-8');
  }
}
