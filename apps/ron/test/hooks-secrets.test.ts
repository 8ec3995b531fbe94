/** The secret of a provider comes from a private file, standard input or a prompt without echo, and reaches interop only. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { ProviderRequest, RotateRequest, WebhookProviderDto } from '@ron/proto';
import { answer, FakeInterop } from './fixtures/fake-interop.ts';
import { BIN, command, ron } from './support.ts';

const SECRET = 'correct horse battery staple';
const isMissing = spawnSync('script', ['--version']).error !== undefined;
const skip = isMissing ? 'the script command is not here: install util-linux' : false;

interface Stored {
  readonly fake: FakeInterop;
  /** The secrets that arrived. */
  readonly secrets: (string | undefined)[];
  providers: WebhookProviderDto[];
}

const providerOf = (name: string, init: Partial<ProviderRequest>, version: number): WebhookProviderDto =>
  ({
    scheme: 'github',
    topic: `hooks.${name}`,
    networks: [],
    origins: [],
    limits: { rps: 1, inflight: 1 },
    ...init,
    name,
    secrets: [{ version, kind: 'hmac', created_ms: 0, uses: 0 }],
    secret: undefined,
  }) as WebhookProviderDto;

async function stored(t: TestContext): Promise<Stored> {
  const fake = await FakeInterop.open(t);
  const state: Stored = { fake, secrets: [], providers: [] };
  fake.routes.set('GET /admin/providers', (_request, response) =>
    answer(response, 200, { providers: state.providers }),
  );
  fake.routes.set('GET /admin/providers/git', (_request, response) => answer(response, 200, state.providers[0]));
  fake.routes.set('PUT /admin/providers/git', (_request, response, body) => {
    const init = JSON.parse(body) as ProviderRequest;
    state.secrets.push(init.secret);
    state.providers = [providerOf('git', init, state.secrets.length)];
    answer(response, 201, state.providers[0]);
  });
  fake.routes.set('POST /admin/providers/git/rotate', (_request, response, body) => {
    const { secret, overlap_ms } = JSON.parse(body) as RotateRequest;
    state.secrets.push(`${secret} for ${overlap_ms}`);
    answer(response, 200, state.providers[0]);
  });
  return state;
}

const ADD = ['hooks', 'add', 'git', '--scheme', 'github'];

test('a private file; one that others can read is refused before anything is sent', async (t) => {
  const { fake, secrets } = await stored(t);
  const file = join(fake.dir, 'git.secret');
  await writeFile(file, `${SECRET}\n`, { mode: 0o600 });
  const { code, text, stderr } = await command([...ADD, '--secret-file', file, ...fake.flags]);
  assert.equal(code, 0, stderr);
  assert.deepEqual(secrets, [SECRET]);
  assert.match(text, /^provider {2}git, github, messages go to hooks\.git$/m);
  assert.match(text, /^url {7}unix:\S+\/webhooks\/git$/m);
  assert.match(text, /openssl dgst -sha256 -hmac "\$S"/);
  assert.ok(text.includes(` < ${file})`), text);
  assert.ok(!text.includes(SECRET));
  await chmod(file, 0o644);
  const open = await command([...ADD, '--secret-file', file, '--yes', ...fake.flags]);
  assert.deepEqual([open.code, secrets.length], [77, 1]);
  assert.match(open.stderr, /is open to other users \(mode 0644\): run chmod 600/);
});

test('standard input; without it and without a terminal a file is required', async (t) => {
  const { fake, secrets } = await stored(t);
  const given = await ron(t, [...ADD, '--secret-file', '-', '--json', ...fake.flags], { input: `${SECRET}\n` });
  assert.equal(given.code, 0, given.stderr);
  assert.deepEqual(secrets, [SECRET]);
  assert.ok(!given.text.includes(SECRET));
  const rotate = ['hooks', 'rotate', 'git', ...fake.flags];
  for (const [more, input, message] of [
    [[], '', /--secret-file FILE is required without a terminal; --secret-file - reads standard input/],
    [['--secret-file', '-'], ' \n', /the secret is empty: nothing was changed/],
    [['--secret-file', '-'], 'x'.repeat(5000), /standard input has more than 4096 bytes/],
  ] as const) {
    const { code, stderr } = await ron(t, [...rotate, ...more], { input });
    assert.equal(code, 64);
    assert.match(stderr, message);
  }
  assert.equal(secrets.length, 1);
});

test('a generated secret is printed once, in the form of its scheme', async (t) => {
  const { fake, secrets } = await stored(t);
  const { text } = await ron(t, [...ADD, '--generate', ...fake.flags]);
  const [, secret] = /^secret {4}([0-9a-f]{64}) {2}\(shown only now: enter it at the provider\)$/m.exec(text)!;
  assert.deepEqual(secrets, [secret]);
  const standard = ['hooks', 'add', 'git', '--scheme', 'standard', '--generate', '--yes', '--json', ...fake.flags];
  const { text: json } = await ron(t, standard);
  assert.match((JSON.parse(json) as { secret: string }).secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  for (const scheme of ['slack', 'stripe']) {
    const { code, stderr } = await command(['hooks', 'add', 'new', '--scheme', scheme, '--generate', ...fake.flags]);
    assert.equal(code, 64);
    assert.match(stderr, new RegExp(`${scheme} makes the signing secret itself`));
  }
});

test('a known provider keeps its secrets, and loses them only if that is confirmed', async (t) => {
  const { fake, secrets } = await stored(t);
  await command([...ADD, '--generate', ...fake.flags]);
  const kept = await command([...ADD, '--rps', '5', ...fake.flags]);
  assert.equal(kept.code, 0, kept.stderr);
  assert.deepEqual(secrets.slice(1), [undefined]);
  const refused = await ron(t, [...ADD, '--generate', ...fake.flags]);
  assert.equal(refused.code, 64);
  assert.match(refused.stderr, /The secrets of git end at once; `ron hooks rotate` keeps the previous one/);
  assert.equal(secrets.length, 2);
});

test('rotate sends the overlap, 24 h by default', async (t) => {
  const state = await stored(t);
  const { fake, secrets } = state;
  state.providers = [providerOf('git', {}, 1)];
  const file = join(fake.dir, 'next.secret');
  await writeFile(file, SECRET, { mode: 0o600 });
  const rotate = ['hooks', 'rotate', 'git', '--secret-file', file, ...fake.flags];
  assert.equal((await command(rotate)).code, 0);
  assert.equal((await command([...rotate, '--overlap', '0s'])).code, 0);
  assert.deepEqual(secrets, [`${SECRET} for 86400000`, `${SECRET} for 0`]);
  const { code, stderr } = await command([...rotate, '--overlap', '31d']);
  assert.equal(code, 64);
  assert.match(stderr, /--overlap must be a duration from 0ms to 30d/);
});

test('the prompt shows nothing of the secret; Ctrl-C and an empty line change nothing', { skip }, async (t) => {
  const { fake, secrets } = await stored(t);
  const typed = async (keys: string): Promise<{ code: number; output: string }> => {
    const words = [process.execPath, BIN, ...ADD, '--yes', ...fake.flags];
    const child = spawn('script', ['-qec', words.join(' '), '/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const isAsked = output.includes('not shown');
      output += text;
      if (!isAsked && output.includes('not shown')) child.stdin.write(keys);
    });
    const [code] = (await once(child, 'close')) as [number];
    return { code, output };
  };
  const entered = await typed(`${SECRET}\r`);
  assert.equal(entered.code, 0, entered.output);
  assert.deepEqual(secrets, [SECRET]);
  assert.match(entered.output, /Secret of git \(not shown\): /);
  assert.ok(!entered.output.includes('horse'), entered.output);
  fake.routes.set('GET /admin/providers', (_request, response) => answer(response, 200, { providers: [] }));
  for (const [keys, code] of [
    ['\u0003', 130],
    ['\u0004', 64],
    ['\r', 64],
  ] as const) {
    const ended = await typed(keys);
    assert.equal(ended.code, code, ended.output);
  }
  assert.equal(secrets.length, 1);
});
