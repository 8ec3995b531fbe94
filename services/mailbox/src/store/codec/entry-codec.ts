/**
 * The payloads of all records besides messages. Lists have a u16 length in front; topics are numbers (see ledger-topics.ts).
 *
 *     leased    seq u48 | delivery u32 | attempts u32 | nonce f64 | until u48 | visibility u32
 *     returned  seq u48 | delivery u32 | not before u48 | delay u32 | error
 *     settled   outcome u8 | topic u16 | seq u48 | of dead letters: reason u8 | attempts u32 | dead u48 | error
 *     topic     number u16 | new u8 | name | policy
 *     base      seq before u48 | topics: number u16 | name | policy | totals
 *     seen      topic u16 | hash (16) | id (16) | seq u48 | b3 (12) | until u48
 *     accepted  at u48 | all u8 | reason | problems | totals: number u16 | totals
 *     policy    set fields u8 | f64 each;    totals  sent, acked, dead, gone: u48 each
 *
 * Contract: each decoder throws `MalformedRecord` unless the payload is complete and has nothing else.
 */
import type { TopicPolicy } from '@ron/proto';
import type {
  AcceptedEntry,
  BaseEntry,
  LeaseEntry,
  ReturnEntry,
  SeenEntry,
  SettledEntry,
  TopicEntry,
  TopicTotals,
} from '../records.ts';
import { ByteReader, ByteWriter, MalformedRecord } from './bytes.ts';
import { reasonByte, reasonOf } from './message-codec.ts';

const writer = new ByteWriter();

const HASH_BYTES = 16;
const ULID_BYTES = 16;
const SEEN_B3_BYTES = 12;
/** Of one entry of `seen`. */
export const SEEN_BYTES = 58;

/** The position is part of the format. */
const POLICY: readonly (keyof TopicPolicy)[] = [
  'max_messages',
  'max_bytes',
  'max_age_ms',
  'max_deliveries',
  'window_ms',
  'dead_max_age_ms',
  'dead_max_messages',
  'dead_max_bytes',
];
const OUTCOMES = ['acked', 'dead', 'removed'] as const;

/** Decodes a payload with `one`, to its end. */
function decode<T>(payload: Buffer, one: (reader: ByteReader) => T): T {
  const reader = new ByteReader(payload);
  const value = one(reader);
  reader.end();
  return value;
}

export function encodeLeased(entries: readonly LeaseEntry[]): Buffer {
  writer.begin().list(entries, (entry) => {
    writer.u48(entry.seq).u32(entry.delivery).u32(entry.attempts).f64(entry.nonce);
    writer.u48(entry.until_ms).u32(entry.visibility_ms);
  });
  return writer.end();
}

export const decodeLeased = (payload: Buffer): LeaseEntry[] =>
  decode(payload, (reader) =>
    reader.list(32, () => ({
      seq: reader.u48(),
      delivery: reader.u32(),
      attempts: reader.u32(),
      nonce: reader.f64(),
      until_ms: reader.u48(),
      visibility_ms: reader.u32(),
    })),
  );

export function encodeReturned(entries: readonly ReturnEntry[]): Buffer {
  writer.begin().list(entries, (entry) => {
    writer.u48(entry.seq).u32(entry.delivery).u48(entry.not_before_ms).u32(entry.delay_ms).text(entry.error);
  });
  return writer.end();
}

export const decodeReturned = (payload: Buffer): ReturnEntry[] =>
  decode(payload, (reader) =>
    reader.list(22, () => ({
      seq: reader.u48(),
      delivery: reader.u32(),
      not_before_ms: reader.u48(),
      delay_ms: reader.u32(),
      error: reader.optionalText(),
    })),
  );

export function encodeSettled(entries: readonly SettledEntry[], numberOf: (topic: string) => number): Buffer {
  writer.begin().list(entries, (entry) => {
    writer
      .u8(OUTCOMES.indexOf(entry.outcome) + 1)
      .u16(numberOf(entry.topic))
      .u48(entry.seq);
    if (entry.outcome !== 'dead') return;
    writer.u8(reasonByte(entry.reason)).u32(entry.attempts).u48(entry.dead_ms).text(entry.error);
  });
  return writer.end();
}

export const decodeSettled = (payload: Buffer, topicOf: (number: number) => string): SettledEntry[] =>
  decode(payload, (reader) =>
    reader.list(9, () => {
      const outcome = OUTCOMES[reader.u8() - 1];
      if (outcome === undefined) throw new MalformedRecord('an unknown outcome');
      const [topic, seq] = [topicOf(reader.u16()), reader.u48()];
      if (outcome !== 'dead') return { outcome, topic, seq };
      const [reason, attempts, dead_ms] = [reasonOf(reader.u8()), reader.u32(), reader.u48()];
      return { outcome, topic, seq, reason, attempts, dead_ms, error: reader.optionalText() };
    }),
  );

function writePolicy(policy: Partial<TopicPolicy>): void {
  const mask = POLICY.reduce((bits, field, index) => (policy[field] === undefined ? bits : bits | (1 << index)), 0);
  writer.u8(mask);
  for (const field of POLICY) if (policy[field] !== undefined) writer.f64(policy[field]);
}

function readPolicy(reader: ByteReader): Partial<TopicPolicy> {
  const mask = reader.u8();
  const set = POLICY.filter((_, index) => (mask & (1 << index)) !== 0);
  return Object.fromEntries(set.map((field) => [field, reader.f64()]));
}

function writeTotals({ sent, acked, dead, gone }: TopicTotals): void {
  writer.u48(sent).u48(acked).u48(dead).u48(gone);
}

const readTotals = (reader: ByteReader): TopicTotals => ({
  sent: reader.u48(),
  acked: reader.u48(),
  dead: reader.u48(),
  gone: reader.u48(),
});

export function encodeTopic({ number, topic, policy, isNew }: TopicEntry): Buffer {
  writer.begin().u16(number).u8(Number(isNew)).text(topic);
  writePolicy(policy);
  return writer.end();
}

export const decodeTopic = (payload: Buffer): TopicEntry =>
  decode(payload, (reader) => ({
    number: reader.u16(),
    isNew: readFlag(reader),
    topic: reader.text(),
    policy: readPolicy(reader),
  }));

function readFlag(reader: ByteReader): boolean {
  const byte = reader.u8();
  if (byte > 1) throw new MalformedRecord('an unknown flag');
  return byte === 1;
}

export function encodeBase({ seq_before, topics }: BaseEntry): Buffer {
  writer
    .begin()
    .u48(seq_before)
    .list(topics, ({ number, topic, policy, totals }) => {
      writer.u16(number).text(topic);
      writePolicy(policy);
      writeTotals(totals);
    });
  return writer.end();
}

export const decodeBase = (payload: Buffer): BaseEntry =>
  decode(payload, (reader) => ({
    seq_before: reader.u48(),
    topics: reader.list(29, () => ({
      number: reader.u16(),
      topic: reader.text(),
      policy: readPolicy(reader),
      totals: readTotals(reader),
    })),
  }));

export function encodeSeen(entries: readonly SeenEntry[], numberOf: (topic: string) => number): Buffer {
  writer.begin().list(entries, ({ topic, hash, id, seq, b3, until_ms }) => {
    writer.u16(numberOf(topic)).bytes(hash).bytes(id).u48(seq).bytes(b3.subarray(0, SEEN_B3_BYTES)).u48(until_ms);
  });
  return writer.end();
}

/** The bytes of an entry are views of the payload. */
export const decodeSeen = (payload: Buffer, topicOf: (number: number) => string): SeenEntry[] =>
  decode(payload, (reader) =>
    reader.list(SEEN_BYTES, () => ({
      topic: topicOf(reader.u16()),
      hash: reader.bytes(HASH_BYTES),
      id: reader.bytes(ULID_BYTES),
      seq: reader.u48(),
      b3: reader.bytes(SEEN_B3_BYTES),
      until_ms: reader.u48(),
    })),
  );

export function encodeAccepted({ at_ms, reason, isAll, problems, totals }: AcceptedEntry): Buffer {
  writer.begin().u48(at_ms).u8(Number(isAll)).text(reason);
  writer.list(problems, (problem) => writer.text(problem));
  writer.list(totals, (each) => {
    writer.u16(each.number);
    writeTotals(each.totals);
  });
  return writer.end();
}

export const decodeAccepted = (payload: Buffer): AcceptedEntry =>
  decode(payload, (reader) => {
    const [at_ms, isAll, reason] = [reader.u48(), readFlag(reader), reader.text()];
    const problems = reader.list(2, () => reader.text());
    const totals = reader.list(26, () => ({ number: reader.u16(), totals: readTotals(reader) }));
    return { at_ms, reason, isAll, problems, totals };
  });
