/** The printed shell command signs a delivery as its scheme demands. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Descriptor } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { sampleCommand } from './sample-command.ts';

const isMissing = spawnSync('openssl', ['version']).error !== undefined;
const skip = isMissing ? 'openssl is not installed: apt install openssl' : false;
const KEY = Buffer.alloc(32, 0xf7);
const URL = 'http://127.0.0.1:7104/webhooks/demo';

const descriptorOf = (scheme: Descriptor['scheme'], generic?: Descriptor['generic']): Descriptor => ({
  name: 'demo',
  scheme,
  topic: 'hooks.demo',
  networks: [],
  origins: [],
  limits: { rps: 1, inflight: 1 },
  ...(generic !== undefined && { generic }),
});

interface Sent {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Runs the command in the plainest shell, with a `curl` that prints its arguments. */
async function run(
  t: TestContext,
  descriptor: Descriptor,
  secret: string,
  { content = `${secret}\n`, shell = 'sh' } = {},
): Promise<Sent> {
  const dir = tempDirFor(t);
  const file = join(dir, "the secret's file");
  await writeFile(file, content, { mode: 0o600 });
  const script = `curl() { printf '%s\\0' "$@"; }\n${sampleCommand(descriptor, URL, file)}`;
  const [silent, url, ...rest] = execFileSync(shell, ['-euc', script], { encoding: 'utf8' }).split('\0').slice(0, -1);
  assert.deepEqual([silent, rest.at(-2)], ['-sS', '--json']);
  const lines = rest.slice(0, -2).filter((word) => word !== '-H');
  const headers = Object.fromEntries(lines.map((line) => line.split(/: (.*)/s).slice(0, 2)));
  return { url: url!, headers, body: rest.at(-1)! };
}

const hmac = (key: string | Buffer, text: string, algorithm = 'sha256'): Buffer =>
  createHmac(algorithm, key).update(text).digest();

test('github, slack and stripe: the printed command signs with the text of the secret', { skip }, async (t) => {
  const github = await run(t, descriptorOf('github'), 'a secret of a test');
  assert.equal(github.url, URL);
  assert.match((JSON.parse(github.body) as { id: string }).id, /^evt_\d+$/);
  const expected = hmac('a secret of a test', github.body).toString('hex');
  assert.equal(github.headers['X-Hub-Signature-256'], `sha256=${expected}`);

  const slack = await run(t, descriptorOf('slack'), 's $`"');
  const time = slack.headers['X-Slack-Request-Timestamp']!;
  assert.ok(Math.abs(Number(time) - Date.now() / 1000) < 60);
  assert.equal(slack.headers['X-Slack-Signature'], `v0=${hmac('s $`"', `v0:${time}:${slack.body}`).toString('hex')}`);

  const stripe = await run(t, descriptorOf('stripe'), 'whsec_text');
  const [, at, signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(stripe.headers['Stripe-Signature']!)!;
  assert.equal(signature, hmac('whsec_text', `${at}.${stripe.body}`).toString('hex'));
});

test('standard: the printed command signs with the decoded secret', { skip }, async (t) => {
  const { headers, body } = await run(t, descriptorOf('standard'), `whsec_${KEY.toString('base64')}`);
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  assert.equal(headers['webhook-signature'], `v1,${hmac(KEY, signed).toString('base64')}`);
});

test('the printed command removes the white space around the secret that `ron` removes', { skip }, async (t) => {
  const shells = ['sh', 'dash', 'bash'].filter((shell) => spawnSync(shell, ['-c', ':']).error === undefined);
  for (const shell of shells)
    for (const secret of ['a secret of a test', 'two  \r\n lines', 'q\'uo"te\\ $x `id`'])
      for (const content of [
        secret,
        `${secret}\r\n`,
        ` \t\v\f\r\n\n ${secret} \t\r\n\r\n `,
        `\n${secret}`,
        `${secret}\n\n`,
      ]) {
        assert.equal(content.trim(), secret);
        const { headers, body } = await run(t, descriptorOf('github'), secret, { content, shell });
        const expected = hmac(secret, body).toString('hex');
        assert.equal(headers['X-Hub-Signature-256'], `sha256=${expected}`, JSON.stringify([shell, content]));
      }
  const secret = `whsec_${KEY.toString('base64')}`;
  const { headers, body } = await run(t, descriptorOf('standard'), secret, { content: `  ${secret}\r\n` });
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  assert.equal(headers['webhook-signature'], `v1,${hmac(KEY, signed).toString('base64')}`);
});

test(
  'generic: the printed command signs its template, with literals that mean something to a shell, sha512, base64, time and id',
  { skip },
  async (t) => {
    const generic = {
      template: '$x`id`"\\{id}y{timestamp}z:{body}',
      signature_header: 'X-Sig',
      prefix: '$p=',
      encoding: 'base64',
      algorithm: 'sha512',
      timestamp_header: 'X-Time',
      id_header: 'X-Id',
    } as const;
    const { headers, body } = await run(t, descriptorOf('generic', generic), 'key');
    const signed = `$x\`id\`"\\${headers['X-Id']}y${headers['X-Time']}z:${body}`;
    assert.equal(headers['X-Sig'], `$p=${hmac('key', signed, 'sha512').toString('base64')}`);
  },
);
