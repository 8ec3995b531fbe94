/** `ron hooks tail` prints every delivery once and in order, however the stream fails. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { DeliveryDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { answer, FakeDeliveries, FakeInterop } from './fixtures/fake-interop.ts';
import { command, Process } from './support.ts';

interface Tailed {
  readonly fake: FakeInterop;
  readonly list: FakeDeliveries;
  readonly tail: (...args: string[]) => Process;
}

async function tailed(t: TestContext): Promise<Tailed> {
  const fake = await FakeInterop.open(t);
  const list = new FakeDeliveries(fake);
  const tail = (...args: string[]): Process => new Process(t, ['hooks', 'tail', ...args, ...fake.flags]);
  return { fake, list, tail };
}

const seqsOf = (process: Process): number[] =>
  process.stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as DeliveryDto).seq);

const connected = (list: FakeDeliveries): Promise<void> =>
  eventually('the stream is open', () => list.streams.size === 1);

test('the last deliveries come first, then live ones; Ctrl-C ends it without a message', async (t) => {
  const { list, tail } = await tailed(t);
  for (let n = 0; n < 700; n++) list.add();
  const process = tail('--json', '--last', '2');
  await connected(list);
  await process.until('the last two', () => seqsOf(process).length === 2);
  list.send('delivery', list.add());
  await process.until('the live one', () => seqsOf(process).length === 3);
  assert.deepEqual(seqsOf(process), [699, 700, 701]);
  process.kill('SIGINT');
  const { code, stderr } = await process.ended;
  assert.deepEqual([code, stderr], [130, '']);
});

test('deliveries between the list and the stream, and those that a slow reader lost, are read from the list', async (t) => {
  const { list, tail } = await tailed(t);
  const process = tail('--json');
  await connected(list);
  list.send('delivery', list.add());
  await process.until('a live one', () => seqsOf(process).length === 1);
  // As if it was recorded before the stream began.
  list.add();
  list.send('delivery', list.add());
  await process.until('both', () => seqsOf(process).length === 3);
  for (let n = 0; n < 5; n++) list.add();
  list.send('lag', { lost: 4 });
  await process.until('the lost ones', () => seqsOf(process).length === 8);
  list.send('delivery', list.all.at(-1));
  list.send('delivery', list.add());
  await process.until('the next one', () => seqsOf(process).length === 9);
  assert.deepEqual(seqsOf(process), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('a lag is reported, and so are deliveries that have left the list', async (t) => {
  const { list, tail } = await tailed(t);
  const process = tail('--last', '0');
  await connected(list);
  for (let n = 0; n < 5; n++) list.add();
  list.all = list.all.slice(3);
  list.send('lag', { lost: 5 });
  await process.until('the rest', () => process.stdout.split('\n').length === 3);
  await process.until('the lag', () => process.stderr.includes('lagged behind by 5 events: reading the list\n'));
  assert.match(process.stderr, /^3 deliveries lost: they have left the list$/m);
});

test('a cut stream is replaced by polling, through a restart that begins the numbers again', async (t) => {
  const { fake, list, tail } = await tailed(t);
  for (let n = 0; n < 3; n++) list.add();
  const process = tail('--json', '--last', '1');
  await connected(list);
  list.refuses = 429;
  list.cut();
  list.add();
  await process.until('the polled one', () => seqsOf(process).length === 2);
  const [deliveries, events] = ['GET /admin/deliveries', 'GET /admin/events'].map((path) => fake.routes.get(path)!);
  fake.routes.set('GET /admin/deliveries', (_request, response) =>
    answer(response, 503, { code: 'draining', detail: 'interop stops' }),
  );
  await eventually('a poll failed', () => fake.requests.filter((each) => each.includes('after=4')).length > 2);
  list.all = [];
  list.seq = 0;
  list.refuses = undefined;
  list.add();
  fake.routes.set('GET /admin/deliveries', deliveries!);
  fake.routes.set('GET /admin/events', events!);
  await process.until('the first one after the restart', () => seqsOf(process).length === 3);
  await connected(list);
  list.send('delivery', list.add());
  await process.until('a live one again', () => seqsOf(process).length === 4);
  assert.deepEqual(seqsOf(process), [3, 4, 1, 2]);
});

test('one provider only, in the history and live, until --max', async (t) => {
  const { fake, list, tail } = await tailed(t);
  fake.routes.set('GET /admin/providers/git', (_request, response) => answer(response, 200, { name: 'git' }));
  for (const provider of ['git', 'git', 'other', 'git', 'other']) list.add({ provider });
  const process = tail('git', '--last', '2', '--max', '4', '--json');
  await connected(list);
  for (const provider of ['other', 'git', 'other', 'git', 'git']) list.send('delivery', list.add({ provider }));
  const { code } = await process.ended;
  assert.deepEqual([code, seqsOf(process)], [0, [2, 4, 7, 9]]);
});

test('--max counts the history too', async (t) => {
  const { list, tail } = await tailed(t);
  for (let n = 0; n < 5; n++) list.add();
  const process = tail('--last', '4', '--max', '3', '--json');
  const { code } = await process.ended;
  assert.deepEqual([code, seqsOf(process)], [0, [2, 3, 4]]);
});

test('an unknown provider exits with 66', async (t) => {
  const { tail } = await tailed(t);
  const process = tail('none');
  await process.until('it refuses', () => process.stderr.includes('no such route'));
  assert.equal((await process.ended).code, 66);
});

test('a reader that closes the pipe ends it without a stack trace', async (t) => {
  const { list, tail } = await tailed(t);
  const process = tail();
  await connected(list);
  process.child.stdout!.destroy();
  const sending = setInterval(() => list.send('delivery', list.add()), 20);
  const { code, stderr } = await process.ended;
  clearInterval(sending);
  assert.deepEqual([code, stderr], [141, '']);
});

test('a refused capability ends it at once', async (t) => {
  const { fake } = await tailed(t);
  fake.routes.set('GET /admin/deliveries', (_request, response) =>
    answer(response, 403, { code: 'forbidden', detail: 'it lacks interop:admin' }),
  );
  const { code, stderr } = await command(['hooks', 'tail', ...fake.flags]);
  assert.equal(code, 77);
  assert.match(stderr, /lacks interop:admin/);
});

test('a delivery is printed as one line, even with line feeds in its values', async (t) => {
  const { list, tail } = await tailed(t);
  list.add({ event: 'push\n\u001b[2J', outcome: 'accepted', bytes: 2048, receipt: 'R', test: true });
  list.add({ outcome: 'refused', reason: 'BAD_ORIGIN', detail: 'no signature', count: 12, corr_id: '' });
  const process = tail();
  await process.until('both', () => process.stdout.split('\n').length === 3);
  assert.equal(
    process.stdout,
    '1970-01-01T00:00:00.000Z  git  accepted   test, push\\u000a\\u001b[2J, 2.0 KiB, receipt R\n' +
      '1970-01-01T00:00:00.000Z  git  refused    BAD_ORIGIN: no signature, 12 times\n',
  );
});
