/** Requests that wait in a work queue take turns by client address. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { Target, raw } from './target.ts';

test('one request of another address is served before the backlog of the first', async () => {
  await using target = await Target.start('--notes.workers=1');
  const slow = raw('GET /slow/200 HTTP/1.1');
  const backlog = await Promise.all(Array.from({ length: 12 }, () => target.open()));
  for (const wire of backlog) wire.write(slow);
  await eventually('they wait', async () => (await target.metric('queue_depth{queue="work"}')) >= 11);
  const other = await target.open('127.0.0.2');
  const served = (): number => backlog.filter((wire) => wire.received !== '').length;
  const served_before = served();
  other.write(slow);
  assert.ok(await other.until(() => other.statuses[0] === 200, 20_000));
  const overtaken = served() - served_before;
  assert.ok(overtaken < 6, `${overtaken} requests of the backlog were served first`);
});
