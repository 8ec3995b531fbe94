import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { answer, flagsFor, FRESH, originOf, refused, removeFiles, startFilling, statusAnswer } from './support.ts';

after(removeFiles);

const STALE = 'cache-control: max-age=0';
/** No answer of the cache hides the asset. */
const NO_NEGATIVE = '--fill.negative_ttl=0s';

const WITHDRAWALS: readonly (readonly [name: string, answer: string, status: number])[] = [
  ['404', statusAnswer(404), 404],
  ['410 with no-store', statusAnswer(410, 'cache-control: no-store'), 404],
  ['200 with no-store', answer('new', 'etag: "2"', 'cache-control: no-store'), 200],
  ['200 with private', answer('new', 'etag: "2"', 'cache-control: private, max-age=60'), 200],
  ['304 with no-store', statusAnswer(304, 'etag: "1"', 'cache-control: no-store'), 200],
];

for (const [name, withdrawal, status] of WITHDRAWALS)
  test(`after ${name} a cached asset is in no tier, and offline mode does not serve it`, async () => {
    await using origin = await originOf(
      (socket) => void socket.write(origin.requests.length === 1 ? answer('old', STALE) : withdrawal),
    );
    await using edge = await startFilling(origin, { flags: [NO_NEGATIVE] });
    assert.equal((await edge.get('/a.png')).text, 'old');
    await eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === 1);
    assert.equal((await edge.get('/a.png')).status, status);
    const key = edge.pathOf('/a.png').slice('/edge/assets/'.length);
    assert.equal(await edge.edge.cache.find(key, NEVER), undefined);
    await edge.reload(flagsFor(origin, [NO_NEGATIVE, '--edge.mode=offline']));
    refused(await edge.get('/a.png'), 403, 'reject_policy', 'not_allowed');
  });

test('an asset that a revalidation in the background found removed is not served again', async () => {
  await using origin = await originOf(
    (socket) => void socket.write(origin.requests.length === 1 ? answer('old', STALE) : statusAnswer(410)),
  );
  const flags = [NO_NEGATIVE, '--fill.stale_while_revalidate=1h', '--fill.stale_if_error=1h'];
  await using edge = await startFilling(origin, { flags });
  assert.equal((await edge.get('/a.png')).text, 'old');
  await eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === 1);
  assert.equal((await edge.get('/a.png')).text, 'old');
  await eventually('removed', async () => (await edge.get('/a.png')).status === 404);
  for (let at = 0; at < 3; at += 1) refused(await edge.get('/a.png'), 404, 'not_found');
});

test('an asset that its origin has again is cached again', async () => {
  const answers = [answer('old', STALE), statusAnswer(404), answer('new', FRESH)];
  await using origin = await originOf(
    (socket) => void socket.write(answers[Math.min(origin.requests.length, answers.length) - 1]!),
  );
  await using edge = await startFilling(origin, { flags: [NO_NEGATIVE] });
  assert.equal((await edge.get('/a.png')).text, 'old');
  await eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === 1);
  assert.equal((await edge.get('/a.png')).status, 404);
  await eventually('a hit', async () => /hit/.test(String((await edge.get('/a.png')).headers['cache-status'])));
  assert.equal((await edge.get('/a.png')).text, 'new');
});
