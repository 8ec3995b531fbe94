/** `GET /`, `GET /{topic}`, `PUT /{topic}` and the dead letters of a topic. */
import { parseCaveat } from '@ron/auth';
import { json, type LaneQueue, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { MAILBOX_LIMITS, topicFact } from '@ron/proto';
import type { MailboxOperations } from '../mailbox/operations.ts';
import type { DeadQuery, DeleteQuery, PolicyBody, ReplayBody, TopicParams } from './schemas.ts';

export interface TopicRoutesInit {
  readonly operations: Pick<
    MailboxOperations,
    'topics' | 'topic' | 'setPolicy' | 'deadLetters' | 'replayDead' | 'deleteDead'
  >;
  /** The queue of the lane `settle`. */
  readonly settle: LaneQueue;
}

interface Params {
  readonly params: typeof TopicParams;
}
type PolicyContext = RouteContext<Params & { readonly body: typeof PolicyBody }>;
type DeadContext = RouteContext<Params & { readonly query: typeof DeadQuery }>;
type ReplayContext = RouteContext<Params & { readonly body: typeof ReplayBody }>;
type DeleteContext = RouteContext<Params & { readonly query: typeof DeleteQuery }>;

const NOT_CACHED = { 'Cache-Control': 'no-store' } as const;

/** A capability that is limited by `name` lists its topics only. */
export function listTopics({ operations }: TopicRoutesInit, { grant }: RouteContext): RouteAnswer {
  const prefixes = (grant?.caveats ?? []).flatMap(namePrefix);
  const isAllowed = (topic: string): boolean => prefixes.every((prefix) => topicFact(topic).startsWith(prefix));
  return json(200, { topics: operations.topics().filter(({ topic }) => isAllowed(topic)) }, NOT_CACHED);
}

function namePrefix(text: string): string[] {
  const caveat = parseCaveat(text);
  return caveat.ok && caveat.value.key === 'name' ? [caveat.value.prefix] : [];
}

export function readTopic({ operations }: TopicRoutesInit, { params }: RouteContext<Params>): RouteAnswer {
  return json(200, operations.topic(params.topic), NOT_CACHED);
}

export async function setPolicy(init: TopicRoutesInit, context: PolicyContext): Promise<RouteAnswer> {
  const { params, body } = context;
  return json(200, await inQueue(init, context, (signal) => init.operations.setPolicy(params.topic, body, signal)));
}

export async function listDead(init: TopicRoutesInit, context: DeadContext): Promise<RouteAnswer> {
  const { params, query } = context;
  const after = Number(query.after ?? 0);
  const limit = Number(query.limit ?? MAILBOX_LIMITS.page);
  const read = (signal: AbortSignal) => init.operations.deadLetters(params.topic, after, limit, signal);
  return json(200, await inQueue(init, context, read), NOT_CACHED);
}

export async function replayDead(init: TopicRoutesInit, context: ReplayContext): Promise<RouteAnswer> {
  const which = context.body ?? {};
  const replay = (signal: AbortSignal) => init.operations.replayDead(context.params.topic, which, signal);
  return json(200, await inQueue(init, context, replay));
}

export async function deleteDead(init: TopicRoutesInit, context: DeleteContext): Promise<RouteAnswer> {
  const { seqs, limit } = context.query;
  const which = {
    ...(seqs !== undefined && { seqs: seqs.split(',').map(Number) }),
    ...(limit !== undefined && { limit: Number(limit) }),
  };
  const remove = (signal: AbortSignal) => init.operations.deleteDead(context.params.topic, which, signal);
  return json(200, await inQueue(init, context, remove));
}

function inQueue<T>(
  { settle }: TopicRoutesInit,
  { params, deadline }: Pick<RouteContext<Params>, 'params' | 'deadline'>,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return settle.submit('settle', deadline, ({ signal }) => work(signal), params.topic);
}
