/**
 * The HTTP surface of mailbox: one row per route, with its scope, body mode, schema and handler.
 *
 * Handlers are inline: they check the request, then submit their work to the queue of its lane, with the topic as the key of
 * fairness. To add a route, add a row here, its schemas to `routes/schemas.ts` and its handler to a file in `routes/`.
 */
import { route, type Route } from '@ron/ingress';
import { BATCH_MEDIA_TYPE, MAILBOX_LIMITS, topicFact } from '@ron/proto';
import { taskAnswers, TaskIdSchema, TaskSchema, TasksSchema, type AdminTasks, type TaskWork } from '@ron/service';
import { peek, receive, type ReceiveRoutesInit } from './routes/receive.ts';
import * as schemas from './routes/schemas.ts';
import { sendBatch, sendOne, type SendRoutesInit } from './routes/send.ts';
import { ack, extend, nack, type SettleRoutesInit } from './routes/settle.ts';
import {
  deleteDead,
  listDead,
  listTopics,
  readTopic,
  replayDead,
  setPolicy,
  type TopicRoutesInit,
} from './routes/topics.ts';

export interface ProveRoutesInit {
  readonly tasks: AdminTasks<'prove'>;
  readonly prove: TaskWork;
}

export type MailboxRoutesInit = SendRoutesInit &
  ReceiveRoutesInit &
  SettleRoutesInit &
  TopicRoutesInit &
  ProveRoutesInit;

const BASE = '/v1/mailbox';
const TOPIC = `${BASE}/:topic`;
/** 128 tokens and an error. */
const SETTLE_BYTES_MAX = 128 * 1024;

/** A capability may be limited to topics. */
const byTopic: NonNullable<Route['facts']> = ({ params }) => ({ name: topicFact(params['topic'] ?? '') });
const READ = { scope: 'mailbox:read', lane: 'inline', body: 'none', deadline: 'settle' } as const;
const SETTLE = {
  method: 'POST',
  scope: 'mailbox:receive',
  lane: 'inline',
  body: 'buffered',
  body_bytes_max: SETTLE_BYTES_MAX,
  decoded_bytes_max: SETTLE_BYTES_MAX,
  deadline: 'settle',
  facts: byTopic,
} as const;
const ADMIN = { ...SETTLE, scope: 'mailbox:admin' } as const;
const TASK = { scope: 'mailbox:admin', lane: 'inline', body: 'none' } as const;

export function routes(init: MailboxRoutesInit): Route[] {
  return [
    ...sendRoutes(init),
    ...receiveRoutes(init),
    ...settleRoutes(init),
    ...topicRoutes(init),
    ...deadLetterRoutes(init),
    ...proveRoutes(init),
  ];
}

function sendRoutes(init: SendRoutesInit): Route[] {
  const SEND = { method: 'POST', scope: 'mailbox:send', lane: 'inline', body: 'buffered', deadline: 'send' } as const;
  return [
    route({
      ...SEND,
      path: `${BASE}/send`,
      summary: 'Stores up to 128 messages for any topics. The results have their order.',
      body_bytes_max: MAILBOX_LIMITS.batch_bytes,
      decoded_bytes_max: MAILBOX_LIMITS.batch_bytes,
      body_types: [BATCH_MEDIA_TYPE],
      facts_later: ['name'],
      schema: { query: schemas.SendQuery, body: schemas.SendBody, response: { 200: schemas.SendResults } },
      handler: (context) => sendBatch(init, context),
    }),
    route({
      ...SEND,
      path: TOPIC,
      summary:
        'Stores the body as one message, without Content-Encoding. Optional headers: Idempotency-Key, Ron-Key, Ron-Delay (seconds).',
      body_bytes_max: MAILBOX_LIMITS.message_bytes,
      // A decoded body would not be the one that was sent, and signed.
      refuses_codings: true,
      facts: byTopic,
      schema: { params: schemas.TopicParams, response: { 200: schemas.Stored, 201: schemas.Stored } },
      handler: (context) => sendOne(init, context),
    }),
  ];
}

function receiveRoutes(init: ReceiveRoutesInit): Route[] {
  return [
    route({
      ...SETTLE,
      path: `${TOPIC}/receive`,
      summary: 'Leases visible messages. With wait_ms it waits for the first one.',
      deadline: 'hold',
      answer_types: [BATCH_MEDIA_TYPE],
      schema: { params: schemas.TopicParams, body: schemas.ReceiveBody, response: { 200: schemas.Received } },
      handler: (context) => receive(init, context),
    }),
    route({
      ...READ,
      method: 'GET',
      path: `${TOPIC}/peek`,
      scope: 'mailbox:admin',
      summary: 'Returns visible messages from the front, without a lease.',
      facts: byTopic,
      answer_types: [BATCH_MEDIA_TYPE],
      schema: { params: schemas.TopicParams, query: schemas.LimitQuery, response: { 200: schemas.Peeked } },
      handler: (context) => peek(init, context),
    }),
  ];
}

function settleRoutes(init: SettleRoutesInit): Route[] {
  const response = { 200: schemas.TokenResults };
  return [
    route({
      ...SETTLE,
      path: `${TOPIC}/ack`,
      summary: 'Settles messages: they are never delivered again.',
      schema: { params: schemas.TopicParams, body: schemas.AckBody, response },
      handler: (context) => ack(init, context),
    }),
    route({
      ...SETTLE,
      path: `${TOPIC}/nack`,
      summary: 'Returns messages: they are delivered again after a backoff or delay_ms, or become dead letters.',
      schema: { params: schemas.TopicParams, body: schemas.NackBody, response },
      handler: (context) => nack(init, context),
    }),
    route({
      ...SETTLE,
      path: `${TOPIC}/extend`,
      summary: 'Leases messages for visibility_ms from now.',
      schema: { params: schemas.TopicParams, body: schemas.ExtendBody, response },
      handler: (context) => extend(init, context),
    }),
  ];
}

function topicRoutes(init: TopicRoutesInit): Route[] {
  const response = { 200: schemas.TopicAnswer };
  // With the slash too: it is not the topic with an empty name.
  const lists = [BASE, `${BASE}/`].map((path) =>
    route({
      ...READ,
      method: 'GET',
      path,
      summary: 'Lists the topics that the capability allows.',
      // The handler leaves out the topics of other names.
      facts_ignored: ['name'],
      schema: { response: { 200: schemas.Topics } },
      handler: (context) => listTopics(init, context),
    }),
  );
  return [
    ...lists,
    route({
      ...READ,
      method: 'GET',
      path: TOPIC,
      summary: 'Returns the ledger, rates, policy and current window of a topic.',
      facts: byTopic,
      schema: { params: schemas.TopicParams, response },
      handler: (context) => readTopic(init, context),
    }),
    route({
      ...ADMIN,
      method: 'PUT',
      path: TOPIC,
      summary: 'Sets the policy of a topic and creates it if needed. Omitted fields follow the configuration.',
      schema: { params: schemas.TopicParams, body: schemas.PolicyBody, response },
      handler: (context) => setPolicy(init, context),
    }),
  ];
}

function deadLetterRoutes(init: TopicRoutesInit): Route[] {
  return [
    route({
      ...READ,
      method: 'GET',
      path: `${TOPIC}/dlq`,
      summary: 'Lists dead letters. `next` is set if more follow: pass it as `after`.',
      facts: byTopic,
      schema: { params: schemas.TopicParams, query: schemas.DeadQuery, response: { 200: schemas.DeadPage } },
      handler: (context) => listDead(init, context),
    }),
    route({
      ...ADMIN,
      path: `${TOPIC}/dlq/replay`,
      summary: 'Sends dead letters again as new messages with `replay_of`: those of seqs, or the oldest.',
      schema: { params: schemas.TopicParams, body: schemas.ReplayBody, response: { 200: schemas.Replayed } },
      handler: (context) => replayDead(init, context),
    }),
    route({
      ...READ,
      method: 'DELETE',
      path: `${TOPIC}/dlq`,
      scope: 'mailbox:admin',
      summary: 'Deletes dead letters: those of seqs, or the oldest.',
      facts: byTopic,
      schema: { params: schemas.TopicParams, query: schemas.DeleteQuery, response: { 200: schemas.Deleted } },
      handler: (context) => deleteDead(init, context),
    }),
  ];
}

/** Outside of the topics: a topic may have any of these names. */
function proveRoutes({ tasks, prove }: ProveRoutesInit): Route[] {
  const answers = taskAnswers(tasks);
  return [
    route({
      ...TASK,
      method: 'POST',
      path: '/admin/prove',
      summary: 'Starts a check of the log and the ledger from disk. Returns the running check if there is one.',
      schema: { response: { 202: TaskSchema } },
      handler: answers.starts('prove', prove),
    }),
    route({
      ...TASK,
      method: 'GET',
      path: '/admin/tasks',
      summary: 'Lists recent tasks, the newest first.',
      schema: { response: { 200: TasksSchema } },
      handler: answers.tasks,
    }),
    route({
      ...TASK,
      method: 'GET',
      path: '/admin/tasks/:id',
      summary: 'Returns the progress or the result of a task.',
      schema: { params: TaskIdSchema, response: { 200: TaskSchema } },
      handler: answers.task,
    }),
  ];
}
