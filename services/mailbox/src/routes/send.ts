/** `POST /send` and `POST /{topic}`. [mailbox I-1] Both answer after the sync of their messages. */
import { json, type LaneQueue, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError, type Deadline, type ErrorCode, type TurnBudget } from '@ron/kernel';
import { topicFact, type OutgoingMessage, type SendError, type SendOptions, type SendResult } from '@ron/proto';
import type { MailboxOperations } from '../mailbox/operations.ts';
import { framedMessages, jsonMessages, singleMessage } from './outgoing.ts';
import type { SendBody, SendQuery, TopicParams } from './schemas.ts';
import { unitsOf } from './turns.ts';

export interface SendRoutesInit {
  readonly operations: Pick<MailboxOperations, 'send'>;
  /** The queue of the lane `send`. */
  readonly send: LaneQueue;
  readonly turns: TurnBudget;
}

type BatchContext = RouteContext<{ readonly query: typeof SendQuery; readonly body: typeof SendBody }>;
type SingleContext = RouteContext<{ readonly params: typeof TopicParams }>;

const CODES: Readonly<Record<SendError, ErrorCode>> = {
  conflict: 'conflict',
  full: 'storage_full',
  topic: 'not_found',
};

export async function sendBatch(init: SendRoutesInit, context: BatchContext): Promise<RouteAnswer> {
  const { query, body, body_bytes } = context;
  // A framed body is not parsed by the listener.
  const given = body as typeof body | undefined;
  const messages = given === undefined ? framedMessages(body_bytes!) : jsonMessages(given.messages);
  for (const topic of new Set(messages.map((message) => message.topic))) context.actsOn({ name: topicFact(topic) });
  const results = await stored(init, context, messages, { ordered: query.ordered !== undefined });
  // The messages of one sync are answered in several turns.
  await init.turns.take(results.length, context.deadline.signal);
  return json(200, { results });
}

export async function sendOne(init: SendRoutesInit, context: SingleContext): Promise<RouteAnswer> {
  const message = singleMessage(context.params.topic, context);
  const [result] = await stored(init, context, [message]);
  if (!('error' in result!)) return json(result!.duplicate ? 200 : 201, result);
  const { error, detail, id, retryable } = result;
  const code = retryable === false ? 'payload_too_large' : CODES[error];
  throw new RonError(code, detail, { ...(id !== undefined && { details: { id } }) });
}

function stored(
  { operations, send, turns }: SendRoutesInit,
  { deadline }: Pick<RouteContext, 'deadline'>,
  messages: readonly OutgoingMessage[],
  how?: SendOptions,
): Promise<readonly SendResult[]> {
  const work = async ({ signal }: Deadline): Promise<readonly SendResult[]> => {
    await turns.take(unitsOf(messages), signal);
    return await operations.send(messages, signal, how);
  };
  return send.submit('send', deadline, work, messages[0]!.topic);
}
