/** `ron queue` and the checks of `ron doctor`, against a real node. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { DeadLetterDto, TopicDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { CleanUps, command, Process, ron as run, temporaryDir, up, type Ended, type Up } from './support.ts';

interface Received {
  readonly id: string;
  readonly seq: number;
  readonly token: string;
  readonly attempts: number;
  readonly key?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly payload: string;
  readonly text?: string;
}

suite('queues', () => {
  const cleanUps = new CleanUps();
  let node: Up;
  let work: string;

  const ron = (...args: string[]): Promise<Ended> => command(['queue', ...args, '--dir', node.dir]);
  const at = (...names: string[]): string => join(work, ...names);

  async function json<T>(...args: string[]): Promise<T[]> {
    const { code, text, stderr } = await ron(...args, '--json');
    assert.equal(code, 0, stderr);
    const lines = text.split('\n').filter((line) => line !== '');
    return lines.map((line) => JSON.parse(line) as T);
  }

  async function ok(...args: string[]): Promise<string> {
    const { code, text, stderr } = await ron(...args);
    assert.equal(code, 0, stderr);
    return text;
  }

  const ledgerOf = async (topic: string): Promise<TopicDto['ledger']> =>
    (await json<TopicDto>('stats', topic))[0]!.ledger;

  before(async () => {
    work = await temporaryDir(cleanUps);
    node = await up(cleanUps, join(work, 'node'), ['--only', 'mailbox']);
  });
  after(() => cleanUps.run());

  test('a message is sent, received and acknowledged, and the ledger balances', async () => {
    const id = (await ok('send', 'first', '--text', 'hello', '--header', 'Kind: greeting', '--key', 'k')).trim();
    assert.match(id, /^[0-7][0-9A-Z]{25}$/);
    const received = await ron('receive', 'first');
    assert.match(received.text, new RegExp(`^id +${id}, seq \\d+\ntoken +\\S+\nsent +\\S+Z, attempt 1, delivery 1\n`));
    assert.match(received.text, /^key +k\nheader +kind: greeting\npayload +5 bytes, b3:[0-9a-f]{64}\n\nhello\n/m);
    const token = /^token +(\S+)$/m.exec(received.text)![1]!;
    assert.match(
      await ok('stats', 'first'),
      /^ledger +1 sent = 0 acked \+ 0 ready \+ 0 delayed \+ 1 leased \+ 0 dead \+ 0 gone$/m,
    );
    assert.equal(await ok('ack', 'first', token), 'acked 1 message\n');
    assert.match(await ok('stats', 'first'), /^ledger +1 sent = 1 acked \+ 0 ready/m);
    const empty = await ron('receive', 'first');
    assert.deepEqual([empty.code, empty.text, empty.stderr], [0, '', 'no message is visible in first\n']);
  });

  test('a stale and a foreign token exit with 1, and change nothing', async () => {
    await ok('send', 'tokens', '--text', 'x');
    const [message] = await json<Received>('receive', 'tokens');
    await ok('ack', 'tokens', message!.token);
    const stale = await ron('ack', 'tokens', message!.token);
    assert.deepEqual([stale.code, stale.text], [1, 'acked 0 messages\n']);
    assert.match(stale.stderr, /^ron: 1 stale: the message was delivered again, or is settled/);
    const foreign = await ron('nack', 'first', message!.token, '--json');
    assert.deepEqual([foreign.code, JSON.parse(foreign.text)], [1, { token: message!.token, result: 'unknown' }]);
  });

  test('files become messages, and --out stores payloads as files before it acknowledges them', async () => {
    const bytes = new Uint8Array([0, 255, 10, 13, 27]);
    await writeFile(at('a.bin'), bytes);
    await writeFile(at('b.txt'), 'two');
    assert.equal(await ok('send', 'files', at('a.bin'), at('b.txt')), 'sent 2 messages\n');
    const text = await ok('receive', 'files', '--max', '10', '--out', at('inbox'), '--ack');
    assert.equal(text.trim().split('\n').length, 2);
    const files = (await readdir(at('inbox'))).toSorted();
    assert.match(files[0]!, /^\d+-[0-9A-Z]{26}$/);
    const stored = await Promise.all(files.map((file) => readFile(at('inbox', file))));
    assert.deepEqual(
      stored.map((each) => each.toString('hex')),
      [Buffer.from(bytes).toString('hex'), '74776f'],
    );
    assert.deepEqual(await ledgerOf('files'), { sent: 2, acked: 2, ready: 0, delayed: 0, leased: 0, dead: 0, gone: 0 });
  });

  test('lines of standard input become messages; the same idempotency key sends only the missing ones', async (t) => {
    const lines = Array.from({ length: 300 }, (_, n) => `line ${n}`);
    const args = ['queue', 'send', 'lines', '-', '--lines', '--idempotency-key', 'import', '--dir', node.dir];
    const first = await run(t, args, { input: `${lines.slice(0, 200).join('\n')}\n` });
    assert.deepEqual([first.code, first.text], [0, 'sent 200 messages\n'], first.stderr);
    const again = await run(t, args, { input: lines.join('\n') });
    assert.deepEqual([again.code, again.text], [0, 'sent 100 messages, 200 duplicates of earlier messages\n']);
    const other = await run(t, args, { input: `${lines.slice(0, 2).join('\n')}\nother` });
    assert.equal(other.code, 1);
    assert.match(other.stderr, /line 3: .*; sent 0 messages, 2 duplicates of earlier messages$/m);
    const long = await run(t, args.with(6, 'x'.repeat(241)), { input: 'x' });
    assert.deepEqual([long.code, long.text], [64, ''], 'no room for the number of the message');
    const received = await run(t, [
      'queue',
      'receive',
      'lines',
      '--max',
      '1000',
      '--lines',
      '--ack',
      '--dir',
      node.dir,
    ]);
    assert.deepEqual([received.code, received.text], [0, `${lines.join('\n')}\n`], received.stderr);
    assert.equal((await ledgerOf('lines')).acked, 300);
  });

  test('an empty message needs --text: an empty standard input is an error', async (t) => {
    for (const more of [[], ['-']]) {
      const args = ['queue', 'send', 'empty', ...more, '--dir', node.dir];
      const { code, stderr } = await run(t, args, { input: '' });
      assert.equal(code, 64);
      assert.match(stderr, /standard input is empty: use --text '' to send an empty message/);
    }
    assert.equal((await ron('stats', 'empty')).code, 66, 'nothing was sent');
    await ok('send', 'empty', '--text', '');
    assert.equal((await ledgerOf('empty')).sent, 1);
  });

  test('a directory that cannot be created is an error at once', async () => {
    const { code, stderr } = await ron('receive', 'files', '--out', '/proc/none/inbox');
    assert.equal(code, 73);
    assert.match(stderr, /\/proc\/none\/inbox cannot be created \(ENOENT\)/);
  });

  test('another body for an idempotency key is a conflict that names the first message', async () => {
    const id = (await ok('send', 'keys', '--text', 'one', '--idempotency-key', 'k')).trim();
    const again = await ron('send', 'keys', '--text', 'one', '--idempotency-key', 'k');
    assert.deepEqual([again.code, again.text.trim()], [0, id]);
    assert.match(again.stderr, /^duplicate of an earlier message: nothing was stored\n$/);
    const other = await ron('send', 'keys', '--text', 'two', '--idempotency-key', 'k', '--json');
    assert.equal(other.code, 1);
    const { error } = JSON.parse(other.stderr) as { error: { code: string; message: string } };
    assert.equal(error.code, 'conflict');
    assert.ok(error.message.includes(id), error.message);
  });

  test('a payload and an error cannot control the terminal', async () => {
    await ok('send', 'hostile', '--text', 'a\u001b[2Jb\u202ec');
    const received = await ron('receive', 'hostile');
    assert.match(received.text, /\na\\u001b\[2Jb\\u202ec\n/);
    const token = /^token +(\S+)$/m.exec(received.text)![1]!;
    await ok('nack', 'hostile', token, '--dead', '--error', 'bad\u001b]0;title\u0007\nsecond line');
    assert.match(await ok('dlq', 'hostile'), /^last error +bad\\u001b\]0;title\\u0007\\u000asecond line$/m);
  });

  test('dead letters are listed, replayed as new messages, and deleted', async () => {
    for (const text of ['a', 'b', 'c']) await ok('send', 'dead', '--text', text);
    const tokens = (await json<Received>('receive', 'dead', '--max', '3')).map(({ token }) => token);
    assert.equal(
      await ok('nack', 'dead', ...tokens, '--dead', '--error', 'no stock'),
      'made dead letters 3 messages\n',
    );
    const letters = await json<DeadLetterDto>('dlq', 'dead');
    assert.deepEqual(
      letters.map(({ reason, attempts, error }) => [reason, attempts, error]),
      Array.from({ length: 3 }, () => ['nacked', 1, 'no stock']),
    );
    const [page] = await json<DeadLetterDto>('dlq', 'dead', '--max', '1', '--after', String(letters[0]!.seq));
    assert.equal(page!.seq, letters[1]!.seq);
    assert.equal(await ok('replay', 'dead', String(letters[1]!.seq)), 'replayed 1 dead letter, 2 left\n');
    const [replayed] = await json<Received & { replay_of: string }>('receive', 'dead', '--ack');
    assert.deepEqual([replayed!.text, replayed!.replay_of], ['b', letters[1]!.id]);
    for (const [verb, done, cause] of [
      ['replay', 'replayed', 'they are damaged, or not among the dead letters'],
      ['delete', 'deleted', 'they are not among the dead letters'],
    ] as const) {
      const none = await ron(verb, 'dead', '999', '--yes');
      assert.deepEqual([none.code, none.text], [0, `${done} 0 dead letters, 2 left\n`]);
      assert.equal(none.stderr, `1 of 1 were not ${done}: ${cause}; see \`ron queue dlq\`\n`);
    }
    assert.equal(await ok('replay', 'dead', '--max', '1'), 'replayed 1 dead letter, 1 left\n');
    assert.equal((await ron('delete', 'dead', '--all')).code, 64, 'not without --yes');
    assert.equal(await ok('delete', 'dead', '--all', '--yes'), 'deleted 1 dead letter, 0 left\n');
    assert.equal(await ok('replay', 'dead', '--all'), 'replayed 0 dead letters, 0 left\n');
    const { sent, acked, ready, dead, gone } = await ledgerOf('dead');
    assert.deepEqual([sent, acked, ready, dead, gone], [5, 1, 1, 0, 3]);
  });

  test('peek leases nothing; nack with a delay and extend change the visibility', async () => {
    await ok('send', 'leases', '--text', 'x');
    assert.match(await ok('peek', 'leases'), /^id .*\nsent .*attempt 0.*\n/);
    const [message] = await json<Received>('receive', 'leases', '--visibility', '5m');
    assert.equal(await ok('extend', 'leases', message!.token, '--visibility', '1h'), 'extended 1 message\n');
    assert.equal((await ledgerOf('leases')).leased, 1);
    assert.equal(await ok('nack', 'leases', message!.token, '--delay', '1h'), 'returned 1 message\n');
    assert.equal((await ledgerOf('leases')).delayed, 1);
  });

  test('a policy is shown and changed one limit at a time, and a full topic refuses with 75', async () => {
    await ok('policy', 'small', '--set', 'max_messages=1');
    const text = await ok('policy', 'small', '--set', 'max_age=2h');
    assert.match(text, /^max_messages +1, set for this topic$/m);
    assert.match(text, /^max_age +2h, set for this topic$/m);
    assert.match(text, /^max_deliveries +12$/m);
    await ok('send', 'small', '--text', 'x');
    const full = await ron('send', 'small', '--text', 'y');
    assert.equal(full.code, 75, full.stderr);
    assert.match(full.stderr, /^ron: small refused --text: the topic has no room for the message\n/);
    assert.match(await ok('policy', 'small', '--set', 'max_messages=default'), /^max_messages +1000000$/m);
    await ok('send', 'small', '--text', 'y');
  });

  test('--follow prints messages as they come, survives a restart of mailbox, and ends at Ctrl-C', async (t) => {
    const follow = new Process(t, ['queue', 'receive', 'live', '--follow', '--ack', '--lines', '--dir', node.dir]);
    await ok('send', 'live', '--text', 'before');
    await follow.until('the first message', () => follow.stdout === 'before\n');
    const { pids } = JSON.parse(await readFile(join(node.dir, 'node.json'), 'utf8')) as Pick<Up, 'pids'>;
    process.kill(pids['mailbox']!, 'SIGKILL');
    await eventually('mailbox is back', async () => (await ron('send', 'live', '--text', 'after')).code === 0);
    await follow.until('the second message', () => follow.stdout.startsWith('before\nafter\n'));
    await eventually('both are acknowledged', async () => (await ledgerOf('live')).ready === 0);
    follow.kill('SIGINT');
    const ended = await follow.ended;
    assert.equal(ended.code, 130);
    assert.doesNotMatch(ended.stderr, /\n\s+at /, 'no stack trace');
  });

  test('messages that a closed pipe could not take are visible again at once', async (t) => {
    await writeFile(at('many'), Array.from({ length: 50 }, (_, n) => `${n} ${'x'.repeat(20_000)}`).join('\n'));
    await ok('send', 'pipe', at('many'), '--lines');
    const args = [
      'queue',
      'receive',
      'pipe',
      '--max',
      '50',
      '--visibility',
      '1h',
      '--ack',
      '--lines',
      '--dir',
      node.dir,
    ];
    const receiver = new Process(t, args);
    await once(receiver.child.stdout!, 'data');
    receiver.child.stdout!.destroy();
    const ended = await receiver.ended;
    assert.deepEqual([ended.code, ended.stderr], [141, '']);
    const { acked, ready, delayed, leased } = await ledgerOf('pipe');
    assert.deepEqual([acked + ready + delayed, leased], [50, 0]);
    assert.ok(acked < 50, `${acked} acknowledged`);
  });

  test('a message above the limit is refused with advice, and an unknown topic with 66', async () => {
    await writeFile(at('large'), new Uint8Array(1024 * 1024 + 1));
    const large = await ron('send', 'first', at('large'));
    assert.equal(large.code, 1);
    assert.match(large.stderr, /large has more than 1\.0 MiB: store it with `ron put`, and send its address/);
    await writeFile(at('largest'), new Uint8Array(1024 * 1024));
    await ok('send', 'first', at('largest'));
    assert.equal((await ron('stats', 'nowhere')).code, 66);
    assert.equal((await ron('send', 'first', at('absent'))).code, 66);
    assert.equal((await ron('send', 'first', work)).code, 64);
  });

  test('prove reads every record, beside a running mailbox and in the directory of a stopped one', async () => {
    const online = await ok('prove');
    assert.match(online, /^log +\d+ records in \d+ segments?, .*, all verified$/m);
    assert.match(online, /^ledger +keys: 1 sent = 0 acked \+ 1 waiting \+ 0 dead \+ 0 gone$/m);
  });

  test('doctor warns of dead letters, and of nothing once they are replayed', async () => {
    const found = await command(['doctor', '--dir', node.dir]);
    assert.match(found.text, /^warn {2}topic hostile has 1 dead letter: .*`ron queue replay hostile --all`$/m);
    assert.match(found.text, /^ok {4}\d+ topics, \d+ messages waiting$/m);
    await ok('replay', 'hostile', '--all');
    const healthy = await command(['doctor', '--dir', node.dir]);
    assert.equal(healthy.code, 0, healthy.text);
    assert.doesNotMatch(healthy.text, /dead letter/);
    assert.doesNotMatch(healthy.text, /is open to other users/);
  });

  test('without a capability every verb is refused with 77', async () => {
    const kept = await readFile(join(node.dir, 'root.cap'));
    await rm(join(node.dir, 'root.cap'));
    for (const args of [
      ['send', 'first', '--text', 'x'],
      ['receive', 'first'],
      ['ack', 'first', 'token'],
      ['stats'],
      ['dlq', 'first'],
      ['replay', 'first', '--all'],
      ['peek', 'first'],
      ['policy', 'first', '--set', 'max_age=1d'],
      ['prove'],
    ])
      assert.equal((await ron(...args)).code, 77, args.join(' '));
    await writeFile(join(node.dir, 'root.cap'), kept, { mode: 0o600 });
    assert.equal((await stat(join(node.dir, 'root.cap'))).mode & 0o777, 0o600);
  });
});
