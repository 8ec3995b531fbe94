/**
 * Probes `/healthz` of a node while a test runs: an event loop that is blocked would answer late.
 *
 * The time in which the machine had no processor for the test or for interop does not count.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { TestNode } from './node.ts';

const EVERY_MS = 50;
const ANSWER_MS_MAX = 1000;

export class HealthWatch {
  #isStopped = false;
  readonly #running: Promise<void>;
  slowest_ms = 0;
  count = 0;

  constructor(node: TestNode) {
    this.#running = this.#watch(node);
    // Its failure is reported by `stop`.
    this.#running.catch(() => undefined);
  }

  /** Fails if an answer took longer than a second, or was not 200. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    assert.ok(this.count > 0);
    assert.ok(this.slowest_ms < ANSWER_MS_MAX, `healthz took ${Math.round(this.slowest_ms)} ms`);
  }

  async #watch(node: TestNode): Promise<void> {
    while (!this.#isStopped) {
      const before_ms = await waitedMs(node);
      const begun_ms = performance.now();
      const { status } = await node.send('GET', '/healthz');
      assert.equal(status, 200);
      const took_ms = performance.now() - begun_ms;
      this.slowest_ms = Math.max(this.slowest_ms, took_ms - ((await waitedMs(node)) - before_ms));
      this.count += 1;
      await pause(EVERY_MS);
    }
  }
}

/** How long the main threads of the test and of interop were ready to run and did not. */
async function waitedMs(node: TestNode): Promise<number> {
  const pids = [process.pid, ...(node.runs('interop') ? [node.process('interop').pid] : [])];
  const waits = await Promise.all(
    pids.map(async (pid) => {
      const [, waited_ns] = (await readFile(`/proc/${pid}/schedstat`, 'utf8')).split(' ');
      return Number(waited_ns) / 1e6;
    }),
  );
  return waits.reduce((sum, ms) => sum + ms, 0);
}
