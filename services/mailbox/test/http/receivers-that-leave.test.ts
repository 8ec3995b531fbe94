/**
 * [mailbox I-12] Messages of a receiver that leaves before it has the whole answer are released exactly once: whether it
 * leaves before the lease, during the wait, while the answer is sent, by a close, a half-close or a reset.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched, type Parked } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';
import type { Delivery, MailboxOperations } from '../../src/mailbox/operations.ts';
import { message, startStub, StubDelivery, type StubMailbox } from './stub-mailbox.ts';

/** More than the buffers of a connection hold. */
const LARGE = Array.from({ length: 8 }, () => message(Buffer.alloc(1024 * 1024)));

/** Operations whose receives the test answers. */
class Receives {
  readonly now: { readonly parked: Parked<Delivery>; readonly signal: AbortSignal }[] = [];
  readonly later: {
    readonly parked: Parked<Delivery>;
    readonly signal: AbortSignal;
    readonly draining: AbortSignal;
  }[] = [];
  /** Answers receives without a wait at once, with nothing. */
  isEmpty = false;

  readonly operations: Partial<MailboxOperations> = {
    receive: (_topic, _request, signal) => {
      if (this.isEmpty) return Promise.resolve(new StubDelivery([]));
      const parked = sched.park<Delivery>('test.receive');
      this.now.push({ parked, signal });
      return parked.promise;
    },
    awaitMessage: (_topic, _request, signal, draining) => {
      const parked = sched.park<Delivery>('test.wait');
      this.later.push({ parked, signal, draining });
      return parked.promise;
    },
  };
}

async function ask(stub: StubMailbox, body = '{}', accept = 'application/json'): Promise<RawClient> {
  const client = await RawClient.open(stub.port);
  const headers = { 'Content-Type': 'application/json', Accept: accept, 'Content-Length': body.length };
  client.head('POST', '/v1/mailbox/jobs/receive', headers);
  client.write(body);
  return client;
}

const WAYS: Readonly<Record<string, (client: RawClient) => void>> = {
  'by a close': (client) => client.destroy(),
  'by a reset': (client) => void client.socket.resetAndDestroy(),
  'by a half-close': (client) => void client.socket.end(),
};

const gone = (stub: StubMailbox): Promise<void> =>
  eventually('the listener sees that the client left', () => stub.ingress.admission.inflight === 0);

for (const [way, leave] of Object.entries(WAYS)) {
  test(`a receiver that leaves ${way} before its messages are leased does not keep them`, async () => {
    const receives = new Receives();
    await using stub = await startStub({ operations: receives.operations });
    const client = await ask(stub);
    await eventually('the receive', () => receives.now.length === 1);
    leave(client);
    const delivery = new StubDelivery([message()]);
    const { parked, signal } = receives.now[0]!;
    await eventually('the abort', () => signal.aborted);
    parked.wake(delivery);
    await eventually('the release', () => delivery.released > 0);
    assert.equal(delivery.released, 1);
  });

  test(`a long poll that is left ${way} ends its wait, and keeps nothing that it is given too late`, async () => {
    const receives = new Receives();
    receives.isEmpty = true;
    await using stub = await startStub({ operations: receives.operations });
    const client = await ask(stub, '{"wait_ms":20000}');
    await eventually('the wait', () => receives.later.length === 1);
    leave(client);
    const { parked, signal } = receives.later[0]!;
    await eventually('the abort', () => signal.aborted);
    const delivery = new StubDelivery([message()]);
    parked.wake(delivery);
    await eventually('the release', () => delivery.released > 0);
    assert.equal(delivery.released, 1);
  });
}

for (const accept of ['application/json', 'application/x-ron-batch']) {
  test(`a receiver that leaves while its answer is sent releases it (${accept})`, async () => {
    const receives = new Receives();
    await using stub = await startStub({ operations: receives.operations });
    const client = await ask(stub, '{"bytes_max":8388608,"max":128}', accept);
    client.socket.pause();
    await eventually('the receive', () => receives.now.length === 1);
    const delivery = new StubDelivery(LARGE);
    receives.now[0]!.parked.wake(delivery);
    client.socket.resume();
    await client.until(/HTTP\/1\.1 200/);
    client.destroy();
    await eventually('the release', () => delivery.released > 0);
    await gone(stub);
    assert.equal(delivery.released, 1);
  });

  test(`a receiver that has its whole answer keeps its messages when it leaves (${accept})`, async () => {
    const receives = new Receives();
    await using stub = await startStub({ operations: receives.operations });
    for (const messages of [[message()], LARGE]) {
      const client = await ask(stub, '{"bytes_max":8388608,"max":128}', accept);
      await eventually('the receive', () => receives.now.length === 1);
      const delivery = new StubDelivery(messages);
      receives.now.shift()!.parked.wake(delivery);
      const length = /content-length: (\d+)/i;
      await client.until(/\r\n\r\n/);
      const end = client.received.indexOf('\r\n\r\n') + 4;
      const match = length.exec(client.received);
      await eventually('the whole answer', () =>
        match === null ? client.received.endsWith('0\r\n\r\n') : client.received.length === end + Number(match[1]),
      );
      client.destroy();
      await gone(stub);
      assert.equal(delivery.released, 0);
    }
  });
}

test('a receive whose deadline passes first releases the messages that it gets later', async () => {
  const receives = new Receives();
  receives.isEmpty = true;
  await using stub = await startStub({ operations: receives.operations, hold_ms: 200 });
  const reply = await send(stub.url, 'POST', '/v1/mailbox/jobs/receive', {
    headers: { 'content-type': 'application/json' },
    body: '{"wait_ms":20000}',
  });
  assert.equal(reply.status, 504);
  const delivery = new StubDelivery([message()]);
  receives.later[0]!.parked.wake(delivery);
  await eventually('the release', () => delivery.released > 0);
  assert.equal(delivery.released, 1);
});

test('an empty delivery is not released', async () => {
  const receives = new Receives();
  await using stub = await startStub({ operations: receives.operations });
  const client = await ask(stub);
  await eventually('the receive', () => receives.now.length === 1);
  const delivery = new StubDelivery([]);
  client.destroy();
  receives.now[0]!.parked.wake(delivery);
  await gone(stub);
  assert.equal(delivery.released, 0);
});

test('a long poll holds no in-flight permit', async () => {
  const receives = new Receives();
  receives.isEmpty = true;
  await using stub = await startStub({ operations: receives.operations });
  const clients = await Promise.all(Array.from({ length: 20 }, () => ask(stub, '{"wait_ms":20000}')));
  await eventually('the waits', () => receives.later.length === 20);
  assert.equal(stub.ingress.admission.inflight, 0);
  for (const { parked } of receives.later) parked.wake(new StubDelivery([]));
  for (const client of clients) {
    await client.until(/"messages":\[\]/);
    client.destroy();
  }
});
