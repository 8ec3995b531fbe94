/** `POST /{topic}/receive` and `GET /{topic}/peek`. */
import type { LaneQueue, RouteAnswer, RouteContext } from '@ron/ingress';
import type { Deadline, TurnBudget } from '@ron/kernel';
import type { ReceiveRequest } from '@ron/proto';
import { completed, type Delivery, type MailboxOperations } from '../mailbox/operations.ts';
import { wantsBatch } from './accept.ts';
import { handOver } from './handover.ts';
import { messagesAnswer } from './messages-answer.ts';
import type { LimitQuery, ReceiveBody, TopicParams } from './schemas.ts';
import { unitsOf } from './turns.ts';

export interface ReceiveRoutesInit {
  readonly operations: Pick<MailboxOperations, 'receive' | 'awaitMessage' | 'peek'>;
  /** The queue of the lane `settle`. */
  readonly settle: LaneQueue;
  readonly turns: TurnBudget;
  /** The deadline of the part of a receive before its wait. */
  readonly settleStep: (parent: Deadline) => Deadline;
}

type ReceiveContext = RouteContext<{ readonly params: typeof TopicParams; readonly body: typeof ReceiveBody }>;
type PeekContext = RouteContext<{ readonly params: typeof TopicParams; readonly query: typeof LimitQuery }>;

const PEEK_DEFAULT = 16;

export async function receive(init: ReceiveRoutesInit, context: ReceiveContext): Promise<RouteAnswer> {
  const asBatch = wantsBatch(context.headers.accept);
  const request = completed(context.body ?? {});
  const { gone } = context;
  const ready = await receiveNow(init, context, request, gone);
  const isDone = ready.messages.length > 0 || request.wait_ms === 0;
  const { messages } = isDone ? ready : await receiveLater(init, context, request, gone);
  await init.turns.take(unitsOf(messages), context.deadline.signal);
  return messagesAnswer(messages, asBatch);
}

async function receiveNow(
  { operations, settle, settleStep, turns }: ReceiveRoutesInit,
  { params: { topic }, deadline }: ReceiveContext,
  request: Required<ReceiveRequest>,
  gone: AbortSignal,
): Promise<Delivery> {
  using step = settleStep(deadline);
  const work = async ({ signal }: Deadline): Promise<Delivery> => {
    await turns.take(request.max, signal);
    return handOver(await operations.receive(topic, request, signal), gone);
  };
  return await settle.submit('settle', step, work, topic);
}

/** Waits without an in-flight permit and outside the queue. */
async function receiveLater(
  { operations }: ReceiveRoutesInit,
  context: ReceiveContext,
  request: ReceiveRequest,
  gone: AbortSignal,
): Promise<Delivery> {
  const { params, deadline, draining } = context;
  return await context.park(async () =>
    handOver(await operations.awaitMessage(params.topic, request, deadline.signal, draining), gone),
  );
}

export async function peek({ operations, settle }: ReceiveRoutesInit, context: PeekContext): Promise<RouteAnswer> {
  const { params, query, deadline, headers } = context;
  const asBatch = wantsBatch(headers.accept);
  const limit = Number(query.limit ?? PEEK_DEFAULT);
  const work = (scope: Deadline) => operations.peek(params.topic, limit, scope.signal);
  return messagesAnswer(await settle.submit('settle', deadline, work, params.topic), asBatch);
}
