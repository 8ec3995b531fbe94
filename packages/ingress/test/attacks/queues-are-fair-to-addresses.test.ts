/** Requests that wait in a work queue take turns by client address. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '../support.ts';
import { Target, raw } from './target.ts';

test('one request of another address is served before the backlog of the first', async () => {
  await using target = await Target.start('--notes.workers=1');
  const slow = raw('GET /slow/200 HTTP/1.1');
  const backlog = await Promise.all(Array.from({ length: 12 }, () => target.open()));
  for (const wire of backlog) wire.write(slow);
  await eventually('they wait', async () => (await target.metric('queue_depth{queue="work"}')) >= 11);
  const other = await target.open('127.0.0.2');
  other.write(slow);
  assert.ok(await other.until(() => other.statuses[0] === 200, 20_000));
  const served = backlog.filter((wire) => wire.received !== '').length;
  assert.ok(served < 6, `${served} of 12 requests that came before were served first`);
});
