/**
 * A call between two services of a node, a small `POST` with a JSON answer: by a Unix socket and by loopback TCP, to the same
 * process in alternating batches, and the cost of narrowing a capability to one request. Wall time of sequential calls.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MemoryKeySource, mint, narrowed } from '@ron/auth';
import { JsonCalls } from '@ron/client/calls';
import { reach } from '@ron/client/node';
import { createIngress, json, route, Type } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { measure, nsEach, quick, report, scratchDir, type Case } from './lib.ts';

const CALLS = quick ? 500 : 2000;
const BATCH = 100;
const BODY = { kid: 'ron/audience/hmac/root#v1', label: 'audience/storage/v1' };
const socketIn = (dir: string): string => join(dir, 'run', 'x.sock');

if (process.argv[2] === 'serve') await serve(process.argv[3]!);
else await main();

async function serve(dir: string): Promise<void> {
  const Order = Type.Object({ kid: Type.String(), label: Type.String() }, { additionalProperties: false });
  const handler = route({
    method: 'POST',
    path: '/v1/x/derive',
    summary: 'Answers like a derivation.',
    schema: { body: Order },
    scope: null,
    lane: 'inline',
    body: 'buffered',
    handler: ({ body }) => json(200, { kid: body.kid, min_version: 1, secret_b64: 'A'.repeat(44) }),
  });
  const config = { socket: socketIn(dir) };
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics: new Metrics('x'),
    config,
    routes: [handler],
  });
  process.send!(await ingress.listen());
  process.on('disconnect', () => process.exit());
}

async function main(): Promise<void> {
  const dir = scratchDir('internal-calls');
  const child = fork(fileURLToPath(import.meta.url), ['serve', dir]);
  try {
    const [url] = (await once(child, 'message')) as [string];
    const callsAt = (at: string): JsonCalls => new JsonCalls('v1/x/', reach(at));
    const tcp = callsAt(url);
    const unix = callsAt(`unix:${socketIn(dir)}`);
    const batch = async (calls: JsonCalls): Promise<number> => {
      const began_ms = performance.now();
      for (let call = 0; call < BATCH; call++) await calls.post('derive', 'derive', BODY);
      return performance.now() - began_ms;
    };
    let tcp_ms = 0;
    let unix_ms = 0;
    const both = async (): Promise<void> => {
      tcp_ms = 0;
      unix_ms = 0;
      for (let done = 0; done < CALLS; done += BATCH) {
        tcp_ms += await batch(tcp);
        unix_ms += await batch(unix);
      }
    };
    await using keys = new MemoryKeySource();
    const { signal } = new AbortController();
    const claim = { audience: 'kms', scopes: ['kms:derive'], ttl_ms: 3_600_000 } as const;
    const { token } = await mint(keys, claim, signal);
    const body = Buffer.from(JSON.stringify(BODY));
    const narrowAll = (): void => {
      for (let call = 0; call < 1000; call++) narrowed(token, { audience: 'kms', body });
    };
    const cases: Case[] = [
      {
        name: 'call by loopback TCP',
        unit: 'us/call',
        run: async () => {
          await both();
          return (tcp_ms / CALLS) * 1000;
        },
      },
      { name: 'call by Unix socket', unit: 'us/call', run: () => (unix_ms / CALLS) * 1000 },
      { name: 'Unix socket against TCP', unit: 'ratio', bar: 1, run: () => unix_ms / tcp_ms },
      {
        name: 'narrowing a capability to a body',
        unit: 'us/call',
        run: () => nsEach(1000, narrowAll) / 1000,
      },
    ];
    report('internal-calls', 'Calls between services of a node', await measure(cases, quick ? 3 : 7));
  } finally {
    child.disconnect();
    rmSync(dir, { recursive: true });
  }
}
