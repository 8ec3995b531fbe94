/** `ron hooks` and the checks of `ron doctor`, against a real node. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { BrownoutDto, DeliveryDto, SchemeName, TopicDto, WebhookProviderDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { CleanUps, command, Process, temporaryDir, up, type Ended, type Up } from './support.ts';

const SECRETS: Readonly<Record<SchemeName, string>> = {
  github: 'a secret of a test, for github',
  slack: '8f742231b10e8888abcd99yyyzzz85a5',
  stripe: 'whsec_a_secret_of_a_test_for_stripe',
  standard: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  generic: 'a secret of a test, for any scheme',
};
const GENERIC = ['--template', '{id}.{timestamp}.{body}', '--signature-header', 'X-Sig', '--prefix', 'v1='];
const FLAGS: Readonly<Partial<Record<SchemeName, readonly string[]>>> = {
  generic: [...GENERIC, '--timestamp-header', 'X-Time', '--id-header', 'X-Id', '--encoding', 'base64'],
};

suite('webhooks', () => {
  const cleanUps = new CleanUps();
  let node: Up;
  let work: string;

  const ron = (...args: string[]): Promise<Ended> => command([...args, '--dir', node.dir]);
  const hooks = (...args: string[]): Promise<Ended> => ron('hooks', ...args);
  const at = (...names: string[]): string => join(work, ...names);

  async function ok(...args: string[]): Promise<string> {
    const { code, text, stderr } = await hooks(...args);
    assert.equal(code, 0, stderr);
    return text;
  }

  async function json<T>(...args: string[]): Promise<T[]> {
    const lines = (await ok(...args, '--json')).split('\n').filter((line) => line !== '');
    return lines.map((line) => JSON.parse(line) as T);
  }

  const shown = async (name: string): Promise<WebhookProviderDto> => (await json<WebhookProviderDto>('show', name))[0]!;
  const secretFile = async (name: string, secret: string): Promise<string> => {
    await writeFile(at(`${name}.secret`), `${secret}\n`, { mode: 0o600 });
    return at(`${name}.secret`);
  };

  async function add(name: string, scheme: SchemeName, ...more: string[]): Promise<string> {
    const file = await secretFile(name, SECRETS[scheme]);
    return await ok('add', name, '--scheme', scheme, '--secret-file', file, ...(FLAGS[scheme] ?? []), ...more);
  }

  /** Runs the command that `add` printed; returns status and body. */
  function runSample(text: string): string {
    const script = text.slice(text.indexOf('\nS=') + 1).replace('curl -sS', "curl -sS -w '%{http_code}'");
    return execFileSync('sh', ['-euc', script], { encoding: 'utf8' });
  }

  before(async () => {
    work = await temporaryDir(cleanUps);
    node = await up(cleanUps, join(work, 'node'), ['--only', 'interop,mailbox']);
  });
  after(() => cleanUps.run());

  for (const scheme of Object.keys(SECRETS) as SchemeName[]) {
    test(`${scheme}: the printed command is accepted, and so is ron hooks test; both messages can be received`, async () => {
      const text = await add(scheme, scheme);
      assert.match(text, new RegExp(`^url {7}http://127.0.0.1:\\d+/webhooks/${scheme}$`, 'm'));
      assert.match(runSample(text), scheme === 'slack' ? /^200$/ : /"place":"(mailbox|spool)"\}202$/);
      // On a machine under load mailbox takes more than 250 ms: then the message comes through the spool.
      assert.match(
        await ok('test', scheme),
        new RegExp(
          `^accepted: receipt \\S{26}, the sample is in (the spool; mailbox gets it later, in )?hooks.${scheme}\n$`,
        ),
      );
      const received = await ron(
        'queue',
        'receive',
        `hooks.${scheme}`,
        '--max',
        '2',
        '--wait',
        '20s',
        '--ack',
        '--json',
      );
      const messages = received.text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { headers: object });
      assert.deepEqual(
        messages.map(({ headers }) => 'ron-test' in headers),
        [false, true],
      );
      assert.equal((await shown(scheme)).secrets[0]!.uses, 2);
    });
  }

  test('list and show print no secret, and neither do logs and files', async () => {
    await add('quiet', 'github');
    const text = `${await ok('list')}${await ok('show', 'quiet')}${await ok('list', '--json')}`;
    assert.match(text, /^quiet {5}github {4}hooks\.quiet /m);
    assert.ok(!text.includes(SECRETS.github));
    const files = await readdir(node.dir, { recursive: true, withFileTypes: true });
    for (const file of files.filter((each) => each.isFile())) {
      const bytes = await readFile(join(file.parentPath, file.name));
      assert.ok(!bytes.includes(SECRETS.github), file.name);
    }
  });

  test('after a rotation both secrets are accepted, and with --overlap 0s only the new one', async () => {
    const old = await add('turn', 'github');
    const next = await secretFile('next', 'another secret of a test');
    const text = await ok('rotate', 'turn', '--secret-file', next, '--overlap', '1h');
    assert.match(text, /^newest {4}v2: enter it at the provider now\nprevious {2}v1, accepted until \S+Z$/m);
    assert.match(runSample(old), /202$/);
    assert.match(runSample(old.replaceAll(at('turn.secret'), next)), /202$/);
    assert.deepEqual(
      (await shown('turn')).secrets.map(({ version, uses }) => [version, uses]),
      [
        [2, 1],
        [1, 1],
      ],
    );
    const doctor = await ron('doctor');
    assert.match(
      doctor.text,
      /^warn {2}secret v1 of turn ends in (59 min \d+ s|1 h 0 min), and deliveries are still signed with it: /m,
    );
    const last = await secretFile('last', 'the last secret of a test');
    await ok('rotate', 'turn', '--secret-file', last, '--overlap', '0s');
    assert.match(runSample(old), /"BAD_ORIGIN".*401$/s);
    assert.match(runSample(old.replaceAll(at('turn.secret'), last)), /202$/);
  });

  test('a change keeps the secret and each setting whose flag is absent, and prints the changes', async () => {
    const text = await add('keeps', 'github', '--origin', 'https://a.example');
    const limited = await ok('add', 'keeps', '--network', '192.0.2.0/24');
    assert.match(limited, /^networks {2}192\.0\.2\.0\/24 \(before: all\)$/m);
    assert.match(runSample(text), /the address is not in the networks of the provider.*403$/s);
    assert.match(
      await ok('add', 'keeps', '--rps', '7'),
      /^limits {4}7\/s, 64 in process \(before: 100\/s, 64 in process\)$/m,
    );
    const { networks, origins, limits, secrets } = await shown('keeps');
    assert.deepEqual([networks, origins, limits], [['192.0.2.0/24'], ['https://a.example'], { rps: 7, inflight: 64 }]);
    assert.deepEqual([secrets.length, secrets[0]!.version], [1, 1]);
    assert.match(await ok('add', 'keeps'), /^changed {3}nothing$/m);
    const opened = await ok('add', 'keeps', '--any-network', '--no-origins');
    assert.match(opened, /^networks {2}all \(before: 192\.0\.2\.0\/24\)$/m);
    assert.match(opened, /^origins {3}none: .*\(before: https:\/\/a\.example\)$/m);
    assert.match(runSample(text), /202$/);
    assert.equal((await hooks('add', 'keeps', '--any-network', '--network', '192.0.2.0/24')).code, 64);
  });

  test('a new secret ends all others and keeps the settings', async () => {
    await add('renew', 'github', '--network', '192.0.2.0/24');
    const text = await ok('add', 'renew', '--generate', '--yes');
    assert.match(text, /^secret {4}v2; all others have ended$/m);
    const { networks, secrets } = await shown('renew');
    assert.deepEqual([networks, secrets.map(({ version }) => version)], [['192.0.2.0/24'], [2]]);
  });

  test('tail prints live deliveries, accepted and refused, and ends at Ctrl-C', async (t) => {
    const text = await add('live', 'github');
    const tail = new Process(t, ['hooks', 'tail', 'live', '--last', '0', '--json', '--dir', node.dir]);
    const seen = (): DeliveryDto[] =>
      tail.stdout
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as DeliveryDto);
    await eventually('the stream delivers', async () => {
      await ok('test', 'live');
      return seen().length > 0;
    });
    runSample(text.replace('sha256=$G', 'sha256=0$G'));
    await tail.until('the refused one', () => seen().at(-1)?.outcome === 'refused');
    assert.deepEqual([seen()[0]!.test, seen().at(-1)!.reason], [true, 'BAD_ORIGIN']);
    tail.kill('SIGINT');
    const { code, stderr } = await tail.ended;
    assert.deepEqual([code, stderr], [130, '']);
  });

  test('tail goes on through a restart of interop', async (t) => {
    await add('again', 'github');
    const tail = new Process(t, ['hooks', 'tail', 'again', '--max', '2', '--json', '--dir', node.dir]);
    await eventually('the first one', async () => {
      await ok('test', 'again');
      return tail.stdout !== '';
    });
    const { pids } = JSON.parse(await readFile(join(node.dir, 'node.json'), 'utf8')) as Up;
    process.kill(pids['interop']!, 'SIGKILL');
    await eventually('interop is back', async () => (await hooks('test', 'again')).code === 0);
    const { code, stderr } = await tail.ended;
    assert.equal(code, 0, stderr);
  });

  test('dead letters of a provider are listed and replayed', async () => {
    await add('dead', 'github');
    await ok('test', 'dead');
    const { text } = await ron('queue', 'receive', 'hooks.dead', '--json');
    const { token } = JSON.parse(text) as { token: string };
    await ron('queue', 'nack', 'hooks.dead', token, '--dead', '--error', 'no such user');
    assert.match(await ok('dlq', 'dead'), /nacked after 1 attempt[\s\S]*no such user/);
    assert.match((await ron('doctor')).text, /^warn {2}topic hooks\.dead has 1 dead letter: /m);
    assert.equal(await ok('replay', 'dead', '--all'), 'replayed 1 dead letter, 0 left\n');
    const stats = await ron('queue', 'stats', 'hooks.dead', '--json');
    assert.equal((JSON.parse(stats.text) as TopicDto).ledger.ready, 1);
    const refused = await hooks('dlq', 'dead', '--url', 'unix:/tmp/interop.sock');
    assert.equal(refused.code, 64);
  });

  test('a brownout ends at its time or by hand, and doctor names it; webhooks are spooled meanwhile', async () => {
    await add('brown', 'github');
    const on = await ok('brownout', 'on', '--for', '5m', '--why', 'storage moves');
    assert.match(on, /^mode {6}on until \S+Z: storage moves\nbrownout {2}active\n/);
    assert.match(on, /^mailbox {3}shed: webhooks go to the spool/m);
    assert.match(
      (await ron('doctor')).text,
      /^warn {2}brownout is set to on by an operator until \S+Z: storage moves: /m,
    );
    assert.match(await ok('test', 'brown'), /the sample is in the spool/);
    const [auto] = await json<BrownoutDto>('brownout', 'auto');
    assert.deepEqual([auto!.mode, auto!.active], ['auto', false]);
    await eventually('the message has left the spool', async () => {
      const { code, text } = await ron('queue', 'stats', 'hooks.brown', '--json');
      return code === 0 && (JSON.parse(text) as TopicDto).ledger.ready === 1;
    });
    await eventually('doctor agrees', async () => !(await ron('doctor')).text.includes('in the spool'));
    assert.equal((await hooks('brownout', 'auto', '--for', '5m')).code, 64);
    assert.equal((await hooks('brownout', 'on', '--for', '25h')).code, 64);
  });

  test('remove asks, and then the provider is gone; an unknown one exits with 66', async () => {
    const text = await add('gone', 'github');
    const asked = await hooks('remove', 'gone');
    assert.equal(asked.code, 64);
    assert.match(asked.stderr, /gone and its secrets will be deleted for good; its webhooks get 404/);
    assert.equal(await ok('remove', 'gone', '--yes'), 'removed gone; its messages stay in hooks.gone\n');
    assert.match(runSample(text), /"POLICY_BLOCKED".*404$/s);
    for (const verb of ['show', 'test', 'remove', 'dlq', 'rotate'])
      assert.equal((await hooks(verb, 'gone', '--yes', '--generate')).code, 66, verb);
  });

  test('invalid values are refused by interop with the reason', async () => {
    const file = await secretFile('bad', 'short');
    const short = await hooks('add', 'bad', '--scheme', 'github', '--secret-file', file);
    assert.equal(short.code, 64);
    assert.match(short.stderr, /the secret has 5 bytes; 16 to 512 are allowed/);
    assert.ok(!short.stderr.includes('short'));
    const network = await hooks('add', 'bad', '--scheme', 'github', '--generate', '--network', '300.0.0.0/8');
    assert.equal(network.code, 64);
    assert.match((await hooks('show', 'Bad')).stderr, /cannot be the name of a provider/);
  });
});
