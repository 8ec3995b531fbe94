/**
 * Checks of the answers of mailbox.
 *
 * Contract: a malformed answer, or a payload that differs from its `b3`, throws `integrity`.
 * Bound: `RECEIVE_BATCH`, checked while the answer is read. Cancellation: by the signal of the request.
 */
import { RonError } from '@ron/kernel/core';
import {
  BATCH_MEDIA_TYPE,
  BatchDecoder,
  BatchError,
  isAddress,
  isUlid,
  isTopic,
  RECEIVE_BATCH,
  type BatchItem,
  type DeadLetterDto,
  type DeadPageDto,
  type DeadReason,
  type DeletedDto,
  type OutgoingMessage,
  type PeekedMessage,
  type ReceivedMessage,
  type ReplayedDto,
  type SendError,
  type SendResult,
  type Task,
  type TokenResult,
  type TopicDto,
  type TopicLedger,
  type TopicPolicy,
} from '@ron/proto';
import type { Answer } from './answer.ts';
import { chunksOf } from './body.ts';
import { addressOf } from './object-hasher.ts';

const wrong = (problem: string, op: string): RonError =>
  new RonError('integrity', `mailbox sent a wrong answer: ${problem}`, { op });

export async function readReceived(answer: Answer, op: string): Promise<readonly ReceivedMessage[]> {
  const messages = await readPeeked(answer, op);
  if (!messages.every((message) => 'token' in message && typeof message.token === 'string'))
    throw wrong('a message has no token', op);
  return messages as readonly ReceivedMessage[];
}

export async function readPeeked(answer: Answer, op: string): Promise<readonly PeekedMessage[]> {
  if (answer.headers.get('content-type') !== BATCH_MEDIA_TYPE || answer.body === null)
    throw wrong('it is not a batch', op);
  const decoder = new BatchDecoder(RECEIVE_BATCH);
  const messages: PeekedMessage[] = [];
  try {
    for await (const piece of chunksOf(answer.body))
      for (const item of decoder.push(piece)) messages.push(verified(item, op));
    decoder.end();
  } catch (error) {
    throw error instanceof BatchError ? wrong(error.message, op) : error;
  }
  return messages;
}

function verified({ head, payload }: BatchItem, op: string): PeekedMessage {
  const message = { ...head, payload } as PeekedMessage;
  const { id, seq, delivery, attempts, sent_ms, b3 } = message;
  const isWhole =
    isUlid(id) && isAddress(b3) && [seq, delivery, attempts, sent_ms].every(isCount) && isTexts(message.headers);
  const { key, replay_of } = message;
  if (!isWhole || !isOptionalText(key) || !isOptionalText(replay_of)) throw wrong('a head lacks a field', op);
  if (addressOf(payload) !== b3) throw wrong(`the payload of ${id} is not the one that was stored`, op);
  return message;
}

type Check = (value: unknown) => boolean;
/** Exactly one check for each field of `T`. */
type Checks<T> = Readonly<Record<keyof T, Check>>;

const isCount: Check = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isOptionalText: Check = (value) => value === undefined || typeof value === 'string';
const isRate: Check = (value) => Number.isFinite(value) && (value as number) >= 0;
const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isTexts: Check = (value) => isRecord(value) && Object.values(value).every((each) => typeof each === 'string');
const oneOf =
  (words: object): Check =>
  (value) =>
    typeof value === 'string' && Object.hasOwn(words, value);
const isShape =
  <T>(checks: Checks<T>): Check =>
  (value) =>
    isRecord(value) && Object.entries<Check>(checks).every(([name, isGood]) => isGood(value[name]));
const isListOf =
  (isGood: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(isGood);

const SEND_ERRORS: Readonly<Record<SendError, true>> = { conflict: true, full: true, topic: true };
const DEAD_REASONS: Readonly<Record<DeadReason, true>> = {
  max_deliveries: true,
  nacked: true,
  expired: true,
  damaged: true,
};
const TASK_STATES: Readonly<Record<Task['state'], true>> = { running: true, done: true, failed: true, canceled: true };

const POLICY: Checks<TopicPolicy> = {
  max_messages: isCount,
  max_bytes: isCount,
  max_age_ms: isCount,
  max_deliveries: isCount,
  window_ms: isCount,
  dead_max_age_ms: isCount,
  dead_max_messages: isCount,
  dead_max_bytes: isCount,
};
const LEDGER: Checks<TopicLedger> = {
  sent: isCount,
  acked: isCount,
  ready: isCount,
  delayed: isCount,
  leased: isCount,
  dead: isCount,
  gone: isCount,
};
const isTopicDto = isShape<TopicDto>({
  topic: isTopic,
  ledger: isShape(LEDGER),
  bytes: isCount,
  dead_bytes: isCount,
  oldest_s: (value) => value === null || isRate(value),
  sent_per_s: isRate,
  acked_per_s: isRate,
  policy: isShape(POLICY),
  policy_set: isListOf(oneOf(POLICY)),
  window_ms: isRate,
  keys: isCount,
});
const isDeadPage = isShape<Required<DeadPageDto>>({
  dead: isListOf(
    isShape<Required<DeadLetterDto>>({
      id: isUlid,
      seq: isCount,
      reason: oneOf(DEAD_REASONS),
      attempts: isCount,
      error: isOptionalText,
      key: isOptionalText,
      headers: isTexts,
      b3: isAddress,
      bytes: isCount,
      sent_ms: isCount,
      dead_ms: isCount,
    }),
  ),
  next: (value) => value === undefined || isCount(value),
});
const isTask = isShape<Required<Task>>({
  id: (value) => typeof value === 'string',
  kind: (value) => value === 'prove',
  state: oneOf(TASK_STATES),
  started_ms: isCount,
  ended_ms: (value) => value === undefined || isCount(value),
  progress: isRecord,
  problem: isOptionalText,
});
const isRefusal = isShape({
  error: oneOf(SEND_ERRORS),
  id: (value) => value === undefined || isUlid(value),
  detail: (value) => typeof value === 'string',
});

/** Returns the answer if it passes the check. */
const requires =
  <T>(isGood: Check) =>
  (answer: unknown, op: string): T => {
    if (!isGood(answer)) throw wrong('a field is missing or malformed', op);
    return answer as T;
  };
export const requireTopic = requires<TopicDto>(isTopicDto);
export const requireTopics = requires<{ readonly topics: readonly TopicDto[] }>(
  isShape({ topics: isListOf(isTopicDto) }),
);
export const requireDeadPage = requires<DeadPageDto>(isDeadPage);
export const requireReplayed = requires<ReplayedDto>(isShape<ReplayedDto>({ replayed: isCount, left: isCount }));
export const requireDeleted = requires<DeletedDto>(isShape<DeletedDto>({ deleted: isCount, left: isCount }));
export const requireTask = requires<Task<'prove'>>(isTask);

/** Each stored message must have the hash of the payload that was sent. */
export function requireSendResults(answer: unknown, sent: readonly OutgoingMessage[]): readonly SendResult[] {
  const results = resultsOf(answer, sent.length, 'send') as readonly SendResult[];
  for (const [index, result] of results.entries()) {
    if (typeof result !== 'object' || result === null) throw wrong('a result is not an object', 'send');
    if ('error' in result) {
      if (!isRefusal(result)) throw wrong('a refusal lacks a field', 'send');
      continue;
    }
    const isWhole = isUlid(result.id) && isCount(result.seq) && typeof result.duplicate === 'boolean';
    if (!isWhole) throw wrong('a result lacks a field', 'send');
    if (result.b3 !== addressOf(sent[index]!.payload))
      throw wrong(`the payload of ${result.id} is not the one that was sent`, 'send');
  }
  return results;
}

export function requireTokenResults(answer: unknown, count: number, op: string): readonly TokenResult[] {
  const results = resultsOf(answer, count, op) as readonly TokenResult[];
  if (!results.every((result) => result === 'ok' || result === 'stale' || result === 'unknown'))
    throw wrong('a result is unknown', op);
  return results;
}

function resultsOf(answer: unknown, count: number, op: string): readonly unknown[] {
  const results = (answer as { results?: unknown } | null)?.results;
  if (!Array.isArray(results) || results.length !== count) throw wrong(`it has not ${count} results`, op);
  return results;
}
