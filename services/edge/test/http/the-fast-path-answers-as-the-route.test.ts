/** Memory answers as the route does, also after the wall clock or the configuration has changed. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { eventually } from '@ron/testkit';
import { answer, flagsFor, FRESH, originOf, removeFiles, startFilling, type Filling } from '../fill/support.ts';

after(removeFiles);

const HOUR_MS = 3_600_000;

async function statusOf(edge: Filling, path: string): Promise<string> {
  return String((await edge.get(path)).headers['cache-status']);
}

function setClock(t: TestContext, by_ms: number): void {
  const now = Date.now;
  t.mock.method(Date, 'now', () => now() + by_ms);
}

for (const isFast of [true, false]) {
  const flag = `--edge.fast_path=${isFast}`;

  for (const by_ms of [HOUR_MS, -HOUR_MS])
    test(`${flag}: after a jump of the clock by ${by_ms / HOUR_MS} h an asset is fetched again`, async (t) => {
      await using origin = await originOf((socket) => void socket.write(answer('tile', FRESH)));
      await using edge = await startFilling(origin, { flags: [flag] });
      await edge.get('/a.png');
      await eventually('a hit', async () => /detail=ram/.test(await statusOf(edge, '/a.png')));
      setClock(t, by_ms);
      assert.match(await statusOf(edge, '/a.png'), /fwd=stale/);
      assert.equal(origin.requests.length, 2);
    });

  test(`${flag}: a reload that removes a parameter from fill.query refuses it, and others stay`, async () => {
    await using origin = await originOf((socket) => void socket.write(answer('tile', FRESH)));
    await using edge = await startFilling(origin, { flags: [flag, '--fill.query=size,format'] });
    const paths = ['/a.png?format=x&size=2', '/a.png?format=x', '/a.png'];
    for (const path of paths) {
      await edge.get(path);
      await eventually('a hit', async () => /detail=ram/.test(await statusOf(edge, path)));
    }
    await edge.reload(flagsFor(origin, [flag, '--fill.query=format']));
    const replies = await Promise.all(paths.map((path) => edge.get(path)));
    assert.deepEqual(
      replies.map(({ status }) => status),
      [400, 200, 200],
    );
  });
}
