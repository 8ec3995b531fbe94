/** `POST /{topic}/ack`, `/nack` and `/extend`. */
import { json, type LaneQueue, type RouteAnswer, type RouteContext } from '@ron/ingress';
import type { Deadline, TurnBudget } from '@ron/kernel';
import { MAILBOX_LIMITS, type NackRequest, type TokenResult } from '@ron/proto';
import type { MailboxOperations } from '../mailbox/operations.ts';
import type { AckBody, ExtendBody, NackBody, TopicParams } from './schemas.ts';

export interface SettleRoutesInit {
  readonly operations: Pick<MailboxOperations, 'ack' | 'nack' | 'extend'>;
  /** The queue of the lane `settle`. */
  readonly settle: LaneQueue;
  readonly turns: TurnBudget;
}

type Context<Body extends typeof AckBody> = RouteContext<{ readonly params: typeof TopicParams; readonly body: Body }>;

const encoder = new TextEncoder();

export function ack(init: SettleRoutesInit, context: Context<typeof AckBody>): Promise<RouteAnswer> {
  const { params, body } = context;
  return settled(init, context, (signal) => init.operations.ack(params.topic, body.tokens, signal));
}

export function nack(init: SettleRoutesInit, context: Context<typeof NackBody>): Promise<RouteAnswer> {
  const { params, body } = context;
  const { tokens, error, ...rest } = body;
  const how: NackRequest = error === undefined ? rest : { ...rest, error: cut(error) };
  return settled(init, context, (signal) => init.operations.nack(params.topic, tokens, how, signal));
}

export function extend(init: SettleRoutesInit, context: Context<typeof ExtendBody>): Promise<RouteAnswer> {
  const { params, body } = context;
  return settled(init, context, (signal) =>
    init.operations.extend(params.topic, body.tokens, body.visibility_ms, signal),
  );
}

async function settled(
  { settle, turns }: SettleRoutesInit,
  { params, body, deadline }: Pick<Context<typeof AckBody>, 'params' | 'body' | 'deadline'>,
  work: (signal: AbortSignal) => Promise<readonly TokenResult[]>,
): Promise<RouteAnswer> {
  const inTurn = async ({ signal }: Deadline): Promise<readonly TokenResult[]> => {
    await turns.take(body.tokens.length, signal);
    return await work(signal);
  };
  return json(200, { results: await settle.submit('settle', deadline, inTurn, params.topic) });
}

/** The beginning that has at most `error_bytes` in UTF-8. A copy: a slice would keep the whole text in memory. */
function cut(error: string): string {
  const bytes = Buffer.alloc(MAILBOX_LIMITS.error_bytes);
  const { written } = encoder.encodeInto(error, bytes);
  return bytes.toString('utf8', 0, written);
}
