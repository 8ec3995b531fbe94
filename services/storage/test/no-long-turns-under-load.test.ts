/**
 * The event loop of storage stays responsive while 64 clients store small objects on a real disk.
 *
 * The measure leaves out the time in which the thread waits for a core, because other processes cause it, and the
 * garbage collector: see `loop-watch-main.ts`. The aim is 5 ms. A turn in which a core was shared or slowed down takes
 * up to twice as long, so the test allows single turns of 10 ms and none of 20 ms. An index flush or a file call on the
 * loop takes 45 ms and more, every few seconds. A pause of the virtual machine looks like a turn, so one round of
 * `ROUNDS` must hold.
 */
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { test } from 'node:test';
import { bytesOf, holdsInARound, KIB } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { DirectoryServer } from './directory-server.ts';
import { beginLoopWatch, LOOP_WATCH_MAIN, loopReport } from './loop-watch.ts';

const CLIENTS = 64;
const WARM_UP_MS = 2000;
const RUN_MS = 8000;
const SINGLE_MS = 10;
const SINGLE_MAX = 3;
const TURN_MS_MAX = 20;
const ROUNDS = 3;

/** Stores objects until `isOver`. Returns how many. */
async function storeUntil(server: DirectoryServer, first_seed: number, isOver: () => boolean): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { port } = new URL(server.url);
  const { headers } = server;
  let count = 0;
  for (let seed = first_seed; !isOver(); seed += CLIENTS) {
    const body = bytesOf(4 * KIB, seed);
    const status = await new Promise<number>((resolve, reject) => {
      const path = `/o/${addressOf(body)}`;
      const req = request({ host: '127.0.0.1', port, method: 'PUT', path, headers, agent }, (res) => {
        res.resume();
        res.on('end', () => resolve(res.statusCode!));
      });
      req.on('error', reject);
      req.end(body);
    });
    assert.equal(status, 201);
    count += 1;
  }
  agent.destroy();
  return count;
}

test('no turn of the loop is long while 64 clients store objects', { timeout: 90_000 }, (t) =>
  holdsInARound(ROUNDS, () => storeUnderWatch((message) => t.diagnostic(message))),
);

async function storeUnderWatch(report: (message: string) => void): Promise<string | undefined> {
  await using server = await DirectoryServer.create({ dirs: 1, process: { main: LOOP_WATCH_MAIN } });
  const process = await server.start();
  const load = (run_ms: number, first_seed: number): Promise<number[]> => {
    const until_ms = performance.now() + run_ms;
    const isOver = (): boolean => performance.now() > until_ms;
    return Promise.all(Array.from({ length: CLIENTS }, (_, client) => storeUntil(server, first_seed + client, isOver)));
  };
  await load(WARM_UP_MS, 1);
  beginLoopWatch(process);
  const stored = (await load(RUN_MS, 10_000_000)).reduce((sum, count) => sum + count, 0);
  const { ticks, turns_ms, collected_ms, wall_max_ms } = await loopReport(process);
  const shown = turns_ms.slice(0, 10).map((turn_ms) => turn_ms.toFixed(1));
  report(
    `${stored} objects, ${ticks} ticks; longest turns ${shown.join(', ')} ms; ` +
      `${collected_ms.toFixed(0)} ms of garbage collection; by the wall clock up to ${wall_max_ms.toFixed(1)} ms`,
  );
  assert.ok(ticks > RUN_MS / 10, `the watch looked ${ticks} times`);
  // [storage I-7]
  const long = turns_ms.filter((turn_ms) => turn_ms > SINGLE_MS).length;
  const isShort = (turns_ms[0] ?? 0) < TURN_MS_MAX && long <= SINGLE_MAX;
  return isShort ? undefined : `the longest turns took ${shown.join(', ')} ms`;
}
