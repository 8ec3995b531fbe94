/** The routes of mailbox on operations that a test controls, behind a real listener. */
import { createIngress, type Ingress } from '@ron/ingress';
import { Deadline, NEVER, WorkQueue } from '@ron/kernel';
import type { AccessCheck, ReceivedMessage } from '@ron/proto';
import { AdminTasks } from '@ron/service';
import { Metrics } from '@ron/telemetry';
import type { Delivery, MailboxOperations } from '../../src/mailbox/operations.ts';
import { routes } from '../../src/routes.ts';
import { newTurns } from '../../src/routes/turns.ts';

/** Of the queues `send` and `settle`, each with one worker. */
export const QUEUE_CAPACITY = 16;

/** Opens all routes without a capability. */
const OPEN: AccessCheck = {
  checkHeaders: () => ({
    ok: true,
    capability_id: 'test',
    chain: [],
    subject: 'test',
    scopes: [],
    caveats: [],
    phase2: {
      needsBody: false,
      update: () => undefined,
      end: () => undefined,
      facts: () => undefined,
      settle: () => undefined,
    },
  }),
};

/** Counts its releases. */
export class StubDelivery implements Delivery {
  readonly messages: readonly ReceivedMessage[];
  released = 0;

  constructor(messages: readonly ReceivedMessage[]) {
    this.messages = messages;
  }

  release(): void {
    this.released += 1;
  }
}

export const message = (payload: Uint8Array = Buffer.from('payload')): ReceivedMessage => ({
  id: '01J9ZK3Q7BC4D8WZ1V00A7K2M4',
  seq: 1,
  delivery: 1,
  token: 'token',
  attempts: 1,
  sent_ms: 1,
  headers: {},
  b3: `b3:${'0'.repeat(64)}`,
  payload,
});

export interface StubMailbox extends AsyncDisposable {
  readonly ingress: Ingress;
  readonly queues: { readonly send: WorkQueue; readonly settle: WorkQueue };
  readonly port: number;
  readonly url: string;
}

export interface StubInit {
  readonly operations: Partial<MailboxOperations>;
  /** Of a receive with its wait. Default 25 000. */
  readonly hold_ms?: number;
  /** Of a send. Default 2000. */
  readonly send_ms?: number;
}

export async function startStub({ operations, hold_ms = 25_000, send_ms = 2000 }: StubInit): Promise<StubMailbox> {
  const queues = ['send', 'settle'].map((lane) => new WorkQueue(lane, { capacity: QUEUE_CAPACITY, lanes: [lane] }));
  const [send, settle] = queues as [WorkQueue, WorkQueue];
  const workers = queues.map((queue) => queue.serve({ signal: NEVER, stopping: NEVER }));
  const settleStep = (parent: Deadline): Deadline => Deadline.after('settle', 2000, { parent });
  const budgets_ms: Readonly<Record<string, number>> = { hold: hold_ms, send: send_ms };
  const ingress = await createIngress({
    service: 'mailbox',
    version: '0',
    metrics: new Metrics('mailbox'),
    access: OPEN,
    deadlines: { deadline: (name) => Deadline.after(name, budgets_ms[name] ?? 2000) },
    routes: routes({
      operations: operations as MailboxOperations,
      send,
      settle,
      turns: newTurns(),
      settleStep,
      tasks: new AdminTasks((_kind, work) => work(NEVER)),
      prove: { run: () => Promise.resolve(), progress: () => ({}) },
    }),
  });
  const url = await ingress.listen();
  return {
    ingress,
    queues: { send, settle },
    url,
    port: Number(new URL(url).port),
    async [Symbol.asyncDispose]() {
      await ingress[Symbol.asyncDispose]();
      for (const queue of queues) queue.close();
      await Promise.all(workers);
    },
  };
}
