/** `ron witness` as a process: its key, its listeners, and kill -9 in the middle of cosigning. */
import assert from 'node:assert/strict';
import { chmod, cp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Authority } from '@ron/egress/testing';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { parseVkey, TransparencyLog, Witness } from '@ron/tlog';
import { memorySigner } from '@ron/tlog/testing';
import { command, Process, ron, temporaryDir } from './support.ts';

const ORIGIN = 'example.com/audit';
const signer = memorySigner(ORIGIN);

async function start(t: TestContext, dir: string, more: readonly string[] = []): Promise<Process> {
  const witness = new Process(t, ['witness', 'run', '--dir', dir, '--log', signer.vkey, ...more]);
  await witness.until('ready', () => witness.stdout.includes('"event":"ready"'));
  return witness;
}

/** The answer to a submission; undefined if the witness was killed. */
async function submit(socket: string, body: string): Promise<{ status: number; text: string } | undefined> {
  const { promise, resolve } = Promise.withResolvers<{ status: number; text: string } | undefined>();
  const outgoing = request({ socketPath: socket, path: '/add-checkpoint', method: 'POST', agent: false });
  outgoing.on('error', () => resolve(undefined));
  outgoing.on('response', (response) => {
    let text = '';
    response.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk));
    response.on('close', () => resolve(response.complete ? { status: response.statusCode!, text } : undefined));
  });
  outgoing.end(body);
  return await promise;
}

/** Two logs under one key with different entries: an operator that shows different logs to different readers. */
async function forks(t: TestContext): Promise<TransparencyLog[]> {
  const work = await temporaryDir(t);
  return await Promise.all(
    ['one', 'two'].map(async (text) => {
      const log = await TransparencyLog.open({
        dir: join(work, text),
        origin: ORIGIN,
        signers: [signer],
        signal: NEVER,
      });
      t.after(() => log.close());
      await log.append([Buffer.from(text)], NEVER);
      await log.writeCheckpoint(NEVER);
      return log;
    }),
  );
}

async function bodyOf(log: TransparencyLog, old: number): Promise<string> {
  const { size, text } = log.checkpoint!;
  const proof = old > size ? [] : await log.consistency(old, size);
  return `old ${old}\n${proof.map((hash) => `${Buffer.from(hash).toString('base64')}\n`).join('')}\n${text}`;
}

test('it prints its key, answers at its socket, and drains on SIGTERM', async (t) => {
  const dir = join(await temporaryDir(t), 'witness');
  const [log] = await forks(t);
  const witness = await start(t, dir);
  const vkey = witness.stdout.split('\n')[0]!;
  assert.match(parseVkey(vkey).name, /^ron\.local\/witness\/[0-9a-f]{12}$/);
  assert.equal((await stat(join(dir, 'key'))).mode & 0o777, 0o600);
  const socket = join(dir, 'witness.sock');
  assert.equal((await submit(socket, await bodyOf(log!, 0)))?.status, 200);
  assert.equal((await submit(socket, await bodyOf(log!, 0)))?.text, '1\n');
  assert.equal((await submit(socket, 'x'.repeat(100_000)))?.status ?? 413, 413, 'a large body is refused');
  const second = await ron(t, ['witness', 'run', '--dir', dir, '--log', signer.vkey]);
  assert.equal(second.code, 69, 'one process at a time');
  witness.kill('SIGTERM');
  assert.equal((await witness.ended).code, 0);
  const again = await start(t, dir);
  assert.equal(again.stdout.split('\n')[0], vkey);
});

test('another machine reaches it over TLS, and a client without its authority refuses it', async (t) => {
  const work = await temporaryDir(t);
  using authority = new Authority();
  const { cert, key } = authority.issue({ names: 'IP:127.0.0.1' });
  await writeFile(join(work, 'cert.pem'), cert);
  await writeFile(join(work, 'key.pem'), key, { mode: 0o600 });
  const tls = ['--tls-cert', join(work, 'cert.pem'), '--tls-key', join(work, 'key.pem')];
  const server = await start(t, join(work, 'witness'), ['--bind', '127.0.0.1:0', ...tls]);
  const [vkey = '', ready = ''] = server.stdout.split('\n');
  const { url } = JSON.parse(ready) as { url: string };
  assert.match(url, /^https:/);
  const [log] = await forks(t);
  const cosign = (ca: string) => {
    const egress = { networks: ['127.0.0.0/8'], ca: { pem: ca, mode: 'only' } as const };
    const witness = new Witness({ url, vkeys: [vkey], egress });
    return witness.cosign(log!.checkpoint!, (from, to) => log!.consistency(from, to), NEVER);
  };
  assert.deepEqual((await cosign(authority.pem)).signed_by, [vkey]);
  using stranger = new Authority();
  await assert.rejects(cosign(stranger.pem), { code: 'bad_gateway' });
});

test('a rollback of a whole node is found at its start, and accepted', async (t) => {
  const work = await temporaryDir(t);
  const [dir, data] = [join(work, 'node'), join(work, 'node/kms/data')];
  const run = (...args: string[]) => command([...args, '--dir', dir]);
  const session = async (flags: readonly string[], check: (node: Process) => Promise<void>): Promise<void> => {
    const node = new Process(t, ['up', '--base-port', '0', '--dir', dir, ...flags]);
    await node.until('ready', () => node.stdout.includes('Ctrl-C'));
    await check(node);
    node.kill('SIGTERM');
    assert.equal((await node.ended).code, 0, node.stderr);
  };
  await writeFile(join(work, 'file'), 'hello');
  const sign = () => run('sign', join(work, 'file'));
  const only = ['--only', 'kms'];
  await session(only, async () => {
    assert.equal((await run('keys', 'create', '--alg', 'ed25519')).code, 0);
    assert.equal((await sign()).code, 0);
  });
  await cp(data, join(work, 'copy'), { recursive: true });
  const home = join(work, 'witness');
  const witness = new Process(t, ['witness', 'run', '--dir', home, '--log', join(data, 'audit/vkeys')]);
  await witness.until('ready', () => witness.stdout.includes('"event":"ready"'));
  const vkey = witness.stdout.split('\n')[0]!;
  const flags = [`kms.audit.witness_url=unix:${join(home, 'witness.sock')}`, `kms.audit.witness_key=${vkey}`].flatMap(
    (set) => ['--set', set],
  );
  const isCosigned = async (): Promise<boolean> =>
    (await readFile(join(data, 'audit/checkpoint'), 'utf8')).includes(vkey.split('+')[0]!);
  await session([...only, ...flags], async () => {
    assert.equal((await sign()).code, 0);
    await eventually('the checkpoint is cosigned', isCosigned);
  });
  await rm(data, { recursive: true });
  await cp(join(work, 'copy'), data, { recursive: true });
  await session(flags, async (node) => {
    await node.until('the note', () =>
      /kms is degraded: audit_integrity .*the witness .* has seen \d+ entries/.test(node.stderr),
    );
    assert.equal((await sign()).code, 69);
    const accepted = await run('audit', 'accept', '--reason', 'restored a backup', '--yes');
    assert.match(accepted.text, /^signing +works$/m, accepted.stderr);
    assert.equal((await sign()).code, 0);
    await eventually('the witness cosigns the new log', isCosigned);
  });
});

test('unusable arguments are refused with a reason', async (t) => {
  const work = await temporaryDir(t);
  const dir = join(work, 'witness');
  const run = (...args: string[]) => ron(t, ['witness', ...args]);
  assert.equal((await run('run', '--log', signer.vkey)).code, 64);
  assert.equal((await run('run', '--dir', dir)).code, 64);
  assert.equal((await run('walk', '--dir', dir, '--log', signer.vkey)).code, 64);
  assert.equal((await run('run', '--dir', dir, '--log', join(work, 'none'))).code, 66);
  await writeFile(join(work, 'bad'), 'not a key\n');
  assert.equal((await run('run', '--dir', dir, '--log', join(work, 'bad'))).code, 65);
  const open = await run('run', '--dir', dir, '--log', signer.vkey, '--bind', '0.0.0.0:0');
  assert.equal(open.code, 78, open.stderr);
  assert.match(open.stderr, /tls\.cert_file/);
  const witness = await start(t, dir);
  witness.kill('SIGTERM');
  await witness.ended;
  await chmod(join(dir, 'key'), 0o644);
  const exposed = await run('run', '--dir', dir, '--log', signer.vkey);
  assert.match(exposed.stderr, /open to other users \(mode 0644\)/);
});

test('kill -9 while two forks are submitted: no two roots of one size are cosigned', async (t) => {
  const dir = join(await temporaryDir(t), 'witness');
  const socket = join(dir, 'witness.sock');
  const logs = await forks(t);
  /** Cosigned checkpoints, by size. */
  const signed = new Map<number, Set<string>>();
  let killed = 0;
  for (let round = 0; round < 6; round++) {
    const witness = await start(t, dir);
    const up = new AbortController();
    const known = { size: 0 };
    const flood = logs.map(async (log) => {
      while (!up.signal.aborted) {
        await log.append([Buffer.from(`${round}`)], NEVER);
        await log.writeCheckpoint(NEVER);
        const { size, text } = log.checkpoint!;
        const answer = await submit(socket, await bodyOf(log, known.size));
        if (answer === undefined) killed += 1;
        if (answer?.status === 409) known.size = Number(answer.text);
        if (answer?.status !== 200) continue;
        known.size = size;
        signed.set(size, (signed.get(size) ?? new Set()).add(text.split('\n\n')[0]!));
      }
    });
    await new Promise((resolve) => setTimeout(resolve, 100 + round * 37));
    witness.kill('SIGKILL');
    up.abort();
    await Promise.all([witness.ended, ...flood]);
  }
  assert.ok(signed.size > 0 && killed > 0, `${signed.size} sizes were cosigned, ${killed} submissions were cut off`);
  for (const [size, texts] of signed) assert.equal(texts.size, 1, `two roots of size ${size} were cosigned`);
});
