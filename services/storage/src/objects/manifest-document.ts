/**
 * The manifest of an object as a JSON document of any size, streamed.
 *
 * Contract: the document has the fields of `ObjectManifest` and exactly `size` bytes. `durability` is measured while the
 * chunks are listed, so it comes last, padded with spaces to a fixed width. A page that cannot be read ends the stream with
 * its error. Bound: `BATCH_ENTRIES` entries (about 68 KiB of text) for each stream, and in each turn of the event loop about
 * `TURN_MS` of work for all streams together. Cancellation: by the signal, between two batches.
 */
import type { StoredObject } from '@ron/cas';
import type { ByteSource } from '@ron/ingress';
import { assert, sched } from '@ron/kernel';
import { addressBytes } from '@ron/proto';
import type { DurabilityMeter } from './durability-meter.ts';

const BATCH_ENTRIES = 1024;
/** Copies are looked up for this many chunks before the clock is read. */
const LOOKUPS = 64;
const TURN_MS = 1;
/** Wider than any durability with counts of four digits. */
const DURABILITY_BYTES = 56;
/** 64 hexadecimal digits in quotes. */
const ENTRY_TEXT_BYTES = 66;

export function manifestSource(object: StoredObject, meter: DurabilityMeter): ByteSource {
  const { address, size, chunk_bytes, media_type } = object;
  const text: Frame = {
    head: `{"address":${JSON.stringify(address)},"size":${size},"chunk_bytes":${chunk_bytes},"chunks":[`,
    middle: '],"subtrees":[',
    tail: `],"media_type":${JSON.stringify(media_type)},"durability":`,
  };
  const subtrees = object.whole === undefined ? object.chunks : 0;
  const framing = Buffer.byteLength(text.head + text.middle + text.tail) + DURABILITY_BYTES + 1;
  return {
    size: framing + listBytes(object.chunks) + listBytes(subtrees),
    media_type: 'application/json; charset=utf-8',
    ranges: false,
    read: (_start, _end, signal) => documentBatches(object, meter, text, signal),
  };
}

let lastTurn: Promise<void> = Promise.resolve();

/** Waits for a turn of the event loop that no other stream works in. */
async function turn(signal: AbortSignal): Promise<void> {
  lastTurn = lastTurn.then(() => sched.pause('manifest.turn'));
  await lastTurn;
  signal.throwIfAborted();
}

interface Frame {
  readonly head: string;
  readonly middle: string;
  readonly tail: string;
}

const listBytes = (count: number): number => Math.max(0, count * (ENTRY_TEXT_BYTES + 1) - 1);

async function* documentBatches(
  object: StoredObject,
  meter: DurabilityMeter,
  { head, middle, tail }: Frame,
  signal: AbortSignal,
): AsyncGenerator<readonly Uint8Array[], void, void> {
  const { chunks } = object;
  const survey = new CopySurvey(meter);
  survey.add('object', addressBytes(object.address));
  let before = head;
  for (let at = 0; at < chunks;) {
    const ids = await object.chunkIds(at, BATCH_ENTRIES, signal);
    await turn(signal);
    // The only chunk of an object of one record is that record.
    if (object.whole === undefined) {
      await survey.addContents(ids, signal);
      await turn(signal);
    }
    yield [Buffer.from(before + listed(ids), 'latin1')];
    at += ids.length;
    before = ',';
  }
  before = middle;
  for (let at = 0; at < chunks && object.whole === undefined;) {
    const values = await object.chunkSubtrees(at, BATCH_ENTRIES, signal);
    await turn(signal);
    yield [Buffer.from(before + listed(values), 'latin1')];
    at += values.length;
    before = ',';
  }
  await survey.addContents([...object.pageIds()], signal);
  const durability = JSON.stringify(meter.durability(survey.copies_min)).padEnd(DURABILITY_BYTES);
  assert(durability.length === DURABILITY_BYTES, 'the durability has its fixed width');
  const end = `${object.whole === undefined ? '' : middle}${tail}${durability}}`;
  yield [Buffer.from(end)];
}

function listed(values: readonly Uint8Array[]): string {
  let text = '';
  for (const value of values) {
    const hex = Buffer.from(value.buffer, value.byteOffset, value.length).toString('hex');
    text += text === '' ? `"${hex}"` : `,"${hex}"`;
  }
  return text;
}

/** The fewest copies of any part. */
class CopySurvey {
  readonly #meter: DurabilityMeter;
  copies_min = Infinity;

  constructor(meter: DurabilityMeter) {
    this.#meter = meter;
  }

  add(kind: 'object' | 'content', id: Uint8Array): void {
    this.copies_min = Math.min(this.copies_min, this.#meter.copiesOf(kind, id));
  }

  async addContents(ids: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    let began_ms = sched.now_ms();
    for (const [index, id] of ids.entries()) {
      this.add('content', id);
      if (index % LOOKUPS !== LOOKUPS - 1 || sched.now_ms() - began_ms < TURN_MS) continue;
      await turn(signal);
      began_ms = sched.now_ms();
    }
  }
}
