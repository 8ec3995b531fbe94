/**
 * Parts of the spool and the receipts that are lost while interop does not run: the next starts report them and close the
 * gates, until the operator deletes the file `logs`. Mailbox is away, so that webhooks stay in the spool.
 */
import assert from 'node:assert/strict';
import { cp, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { eventually } from '@ron/testkit';
import { TestNode } from '../node/node.ts';
import { addProvider, signed } from '../node/senders.ts';

const LOGS = ['spool', 'receipts'] as const;

class LostLogs {
  readonly #node: TestNode;
  #n = 0;

  private constructor(node: TestNode) {
    this.#node = node;
  }

  static async start(t: TestContext): Promise<LostLogs> {
    const node = await TestNode.start(t, { services: ['kms', 'passport', 'interop'] });
    await addProvider(await node.admin(), 'github');
    return new LostLogs(node);
  }

  path(...names: readonly string[]): string {
    return join(this.#node.dataOf('interop'), ...names);
  }

  async send(): Promise<void> {
    const reply = await this.#node.send('POST', '/webhooks/github', signed('github', `id ${(this.#n += 1)}`));
    assert.deepEqual([reply.status, reply.json.place], [202, 'spool'], reply.text);
  }

  async stop(): Promise<void> {
    assert.equal(await this.#node.process('interop').stop(), 0);
  }

  async kill(): Promise<void> {
    await this.#node.kill('interop');
  }

  /** Waits until as many gates report a loss. Their reasons, and the events of the log. */
  async start(losses: number): Promise<{ readonly closed: readonly string[]; readonly events: readonly string[] }> {
    await this.#node.start('interop');
    let closed: readonly string[] = [];
    // A late signature is another reason of the gate `receipts`, which passes.
    await eventually(`${losses} losses are reported`, async () => {
      const gates = (await this.#node.readyz()).closed;
      closed = LOGS.flatMap((log) => gates[log] ?? []).filter((reason) => /was missing/.test(reason));
      return closed.length === losses;
    });
    const { log } = this.#node.process('interop');
    return { closed, events: log.filter(({ msg }) => msg === 'log missing').map(({ problem }) => String(problem)) };
  }

  extents(): Promise<Buffer[]> {
    return Promise.all(LOGS.map((log) => readFile(this.path(`${log}.extent`))));
  }
}

for (const log of LOGS)
  test(`segments of ${log} are removed: the gate is closed until the operator accepts it`, async (t) => {
    const node = await LostLogs.start(t);
    for (let n = 0; n < 3; n++) await node.send();
    await node.stop();
    for (const name of await readdir(node.path(log, 'segments'))) await rm(node.path(log, 'segments', name));
    for (let at = 0; at < 2; at++) {
      const { closed, events } = await node.start(1);
      assert.match(
        closed[0]!,
        new RegExp(`^a part of the directory ${log} was missing at a start \\(no segment 1\\): `),
      );
      assert.deepEqual(events, closed);
      await node.send();
      await node.stop();
    }
    await rm(node.path('logs'));
    for (let at = 0; at < 2; at++) {
      assert.deepEqual(await node.start(0), { closed: [], events: [] });
      await node.stop();
    }
  });

test('older copies of both directories are put back after a kill', async (t) => {
  const node = await LostLogs.start(t);
  await node.send();
  await node.kill();
  assert.deepEqual(await node.start(0), { closed: [], events: [] }, 'a kill loses nothing');
  for (const log of LOGS) await cp(node.path(log), node.path(`older-${log}`), { recursive: true });
  const before = await node.extents();
  await node.send();
  await eventually('the extents are noted', async () => {
    const extents = await node.extents();
    return extents.every((extent, at) => !extent.equals(before[at]!));
  });
  await node.kill();
  for (const log of LOGS) {
    await rm(node.path(log), { recursive: true });
    await rename(node.path(`older-${log}`), node.path(log));
  }
  const { closed, events } = await node.start(2);
  assert.match(closed[0]!, /^a part of the directory spool was missing at a start \(segment 1 has \d+ of \d+ bytes\)/);
  assert.match(
    closed[1]!,
    /^a part of the directory receipts was missing at a start \(segment 1 has \d+ of \d+ bytes\)/,
  );
  assert.deepEqual(events, closed);
  await node.kill();
  await rm(node.path('logs'));
  assert.deepEqual(await node.start(0), { closed: [], events: [] });
});
