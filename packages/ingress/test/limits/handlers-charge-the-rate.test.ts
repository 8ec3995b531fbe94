/** With `charges_late` a request spends the rate of the listener when its handler says so, not when it arrives. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createIngress, empty, route } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { send } from '@ron/testkit/service';

const base = { scope: null, lane: 'inline', method: 'GET', body: 'none', summary: 'For a test.' } as const;

test('only requests that are charged spend the rate', async () => {
  const metrics = new Metrics('interop');
  await using ingress = await createIngress({
    service: 'interop',
    version: '0',
    metrics,
    charges_late: true,
    config: { rps_limit: 0.1, rps_burst: 2 },
    routes: [
      route({ ...base, path: '/forged', handler: () => empty(204) }),
      route({
        ...base,
        path: '/verified',
        handler: (context) => {
          context.chargeRate();
          return empty(204);
        },
      }),
    ],
  });
  await ingress.listen();
  const statuses = async (path: string, count: number): Promise<number[]> => {
    const found: number[] = [];
    for (let i = 0; i < count; i += 1) found.push((await send(ingress.url, 'GET', path)).status);
    return found;
  };
  assert.deepEqual(await statuses('/forged', 5), [204, 204, 204, 204, 204]);
  assert.deepEqual(await statuses('/verified', 3), [204, 204, 429]);
  assert.deepEqual(await statuses('/forged', 1), [204]);
  assert.match((await send(ingress.url, 'GET', '/verified')).headers['retry-after']!, /^[1-9][0-9]*$/);
});
