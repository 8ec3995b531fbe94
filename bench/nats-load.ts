/**
 * The load of the mailbox benchmark for JetStream, as a child process: each client has a connection of its own.
 *
 * A batch is as many publishes without waiting between them; it ends when all are answered. Acks are confirmed by the server.
 * Receives orders over IPC and answers each with a `NatsReport`.
 */
import { randomBytes } from 'node:crypto';
import { AckPolicy, jetstream, jetstreamManager, RetentionPolicy, StorageType } from '@nats-io/jetstream';
import { connect, type NatsConnection } from '@nats-io/transport-node';

export interface NatsOrder {
  /** `empty` removes all messages. */
  readonly kind: 'send' | 'cycle' | 'empty';
  readonly port: number;
  readonly clients: number;
  readonly batch: number;
  readonly messages: number;
  readonly payload_bytes: number;
}

export interface NatsReport {
  readonly seconds: number;
}

const NAME = 'bench';

async function prepare(connection: NatsConnection): Promise<void> {
  const manager = await jetstreamManager(connection);
  await manager.streams.add({
    name: NAME,
    subjects: [NAME],
    retention: RetentionPolicy.Workqueue,
    storage: StorageType.File,
  });
  await manager.consumers.add(NAME, { durable_name: NAME, ack_policy: AckPolicy.Explicit, max_ack_pending: -1 });
}

async function client(connection: NatsConnection, order: NatsOrder, batches: number): Promise<void> {
  const js = jetstream(connection);
  const payload = randomBytes(order.payload_bytes);
  const consumer = order.kind === 'cycle' ? await js.consumers.get(NAME, NAME) : undefined;
  for (let count = 0; count < batches; count++) {
    await Promise.all(Array.from({ length: order.batch }, () => js.publish(NAME, payload)));
    if (consumer === undefined) continue;
    const acks: Promise<boolean>[] = [];
    for await (const message of await consumer.fetch({ max_messages: order.batch })) acks.push(message.ackAck());
    const results = await Promise.all(acks);
    if (results.length !== order.batch || results.includes(false))
      throw new Error('JetStream did not confirm the acks');
  }
}

async function run(order: NatsOrder): Promise<NatsReport> {
  const connections = await Promise.all(Array.from({ length: order.clients }, () => connect({ port: order.port })));
  try {
    await prepare(connections[0]!);
    if (order.kind === 'empty') await (await jetstreamManager(connections[0]!)).streams.purge(NAME);
    const start = performance.now();
    const batches = Math.ceil(order.messages / order.batch / order.clients);
    if (order.kind !== 'empty') await Promise.all(connections.map((each) => client(each, order, batches)));
    return { seconds: (performance.now() - start) / 1000 };
  } finally {
    await Promise.all(connections.map((each) => each.close()));
  }
}

process.on('message', (order: NatsOrder) => {
  run(order).then(
    (report) => process.send!(report),
    (error: unknown) => process.send!({ error: String(error) }),
  );
});
