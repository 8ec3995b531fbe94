/**
 * The topology of mailbox.
 *
 *     listener --> send(256) ----> send_pool ----> log --> state, in the step of the sync --> waiting receivers
 *        |                                          ^
 *        |-------> settle(256) --> settle_pool -----'   receive, ack, nack, extend, dead letters
 *        |
 *        `-------> holds(256): receivers that wait for a message
 *
 *     lease_clock --> due messages: visible again, or dead letters
 *     retention ----> messages and dead letters beyond their limits
 *     compactor ----> live messages of the oldest segment --> log; then removes the segment
 */
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type MailboxConfig } from './config.ts';
import { eventLevel, type MailboxEvent } from './events.ts';
import { TOO_MANY_TOPICS } from './mailbox/topics/topics.ts';
import { openParts } from './parts.ts';
import { gatesOf } from './readiness.ts';
import { routes } from './routes.ts';
import { newTurns } from './routes/turns.ts';

export type MailboxContext = OpenContext<MailboxConfig, typeof concurrency, MailboxEvent, object>;

export const mailbox = defineService({
  name: 'mailbox',
  config: schema,
  concurrency,
  eventLevel,
  async open(context: MailboxContext) {
    const { runtime } = context;
    const { operations, send, settle, tasks, prove, compactor } = await openParts(context);
    const { clock, retention, topics } = operations.parts;
    return {
      routes: routes({
        operations,
        send,
        settle,
        turns: newTurns(),
        settleStep: (parent) => runtime.deadline('settle', { parent }),
        tasks,
        prove,
      }),
      gates: gatesOf({
        ledger: () => operations.ledgerProblem,
        disk: () => operations.diskProblem,
        full: () => topics.full(),
        tooMany: () => (topics.isAtLimit ? TOO_MANY_TOPICS : undefined),
      }),
      tasks: {
        send_pool: (task) => send.serve(task),
        settle_pool: (task) => settle.serve(task),
        lease_clock: ({ stopping }) => clock.run(stopping),
        compactor: ({ stopping }) => compactor.run(stopping),
        retention: ({ stopping }) => retention.run(stopping),
      },
      // The log syncs its last segment.
      close_ms: 6000,
      parts: { mailbox: operations },
    };
  },
});

export type MailboxServiceInit = StartInit<MailboxConfig>;
export type MailboxService = Awaited<ReturnType<typeof startMailbox>>;

export function startMailbox(init: MailboxServiceInit) {
  return startService(mailbox, init);
}
