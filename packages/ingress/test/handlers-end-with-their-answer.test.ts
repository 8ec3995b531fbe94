/** A handler that waits for its body ends when the request is answered without it, and gives back its permit and worker. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { createIngress, empty, route } from '@ron/ingress';
import { WorkQueue } from '@ron/kernel';
import { Metrics } from '@ron/telemetry';
import { eventually } from '@ron/testkit';
import { metricIn, send } from '@ron/testkit/service';

const base = { scope: null, method: 'POST', body: 'stream', deadline_ms: 100, summary: 'For a test.' } as const;

for (const lane of ['inline', 'work'])
  test(`a stalled body that gets 408 holds nothing afterwards: lane ${lane}`, async () => {
    const metrics = new Metrics('storage');
    const work = new WorkQueue('work', { capacity: 4, lanes: ['work'] });
    const stop = new AbortController();
    const worker = work.serve({ signal: stop.signal, stopping: stop.signal });
    const ends: string[] = [];
    await using ingress = await createIngress({
      service: 'storage',
      version: '0',
      metrics,
      config: { max_inflight: 2, inflight_reserve: 0 },
      lanes: { work },
      routes: [
        route({
          ...base,
          path: '/body',
          lane,
          handler: async ({ stream }) => {
            try {
              for await (const piece of stream) assert.ok(piece.length > 0);
            } catch (error) {
              ends.push(String(error));
              throw error;
            }
            return empty(204);
          },
        }),
      ],
    });
    await ingress.listen();
    const socket = connect(Number(new URL(ingress.url).port), '127.0.0.1');
    let answer = '';
    socket.on('data', (bytes) => (answer += bytes.toString()));
    socket.on('error', () => undefined);
    // The client keeps its connection, and sends no more.
    socket.write('POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx');
    await eventually('408', () => answer.startsWith('HTTP/1.1 408'));
    await eventually('the handler ends', () => ends.length === 1, 5000);
    assert.match(ends[0]!, /answered before its body was complete|disconnected/);
    const inflight = async (): Promise<number> => metricIn(await metrics.text(), 'http_requests_inflight');
    await eventually('the permit is free', async () => (await inflight()) === 0, 5000);
    assert.equal((await send(ingress.url, 'POST', '/body', { body: 'x' })).status, 204);
    socket.destroy();
    work.close();
    stop.abort();
    await worker.catch(() => undefined);
  });
