/** Every command sends a capability only to services of the node that it belongs to. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { chown, mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { inspectToken, MemoryKeySource, mint, type Capability } from '@ron/auth';
import { scopesOf, type Service } from '@ron/proto';
import { CleanUps, ron, temporaryDir, type Ended } from './support.ts';

const ZEROS = `b3:${'0'.repeat(64)}`;
const SERVICES = ['storage', 'kms', 'passport'] as const;
const { signal } = new AbortController();

/** A well-formed key of a log, without a private key. */
function vkey(): string {
  const key = Buffer.concat([Buffer.of(1), Buffer.alloc(32, 7)]);
  const id = hash('sha256', Buffer.concat([Buffer.from('log\n'), key]), 'hex').slice(0, 8);
  return `log+${id}+${key.toString('base64')}`;
}

/** Records all requests and answers 401. */
class Listener {
  received = '';
  url = '';
  /** Answers with a redirect to this URL instead. */
  redirect: string | undefined;

  /** At a free port, or at a socket. */
  static async open(cleanUps: CleanUps, path?: string): Promise<Listener> {
    const listener = new Listener();
    const server = createServer((request: IncomingMessage, response) => {
      listener.received += `${request.method} ${request.url}\n${request.rawHeaders.join('\n')}\n`;
      request.on('data', (chunk: Buffer) => (listener.received += chunk.toString('latin1')));
      request.on('end', () => {
        const { redirect } = listener;
        if (redirect !== undefined) return response.writeHead(307, { Location: redirect + request.url }).end();
        response.writeHead(401, { 'Content-Type': 'application/problem+json' });
        return response.end(JSON.stringify({ code: 'unauthorized', detail: 'show me', corr_id: 'x' }));
      });
    });
    if (path === undefined) server.listen(0, '127.0.0.1');
    else server.listen(path);
    await once(server, 'listening');
    cleanUps.after(() => {
      server.close();
      server.closeAllConnections();
    });
    listener.url = path === undefined ? `http://127.0.0.1:${(server.address() as AddressInfo).port}` : `unix:${path}`;
    return listener;
  }
}

suite('capability destination', { concurrency: 3 }, () => {
  const cleanUps = new CleanUps();
  const tokens = {} as Record<Service, string>;
  let dir: string;
  let node: string;
  let file: string;
  let own: Record<(typeof SERVICES)[number], Listener>;
  let port: Listener;
  let foreign: Listener;

  before(async () => {
    dir = await temporaryDir(cleanUps);
    node = join(dir, '.ron');
    file = join(node, 'root.cap');
    await mkdir(node, { mode: 0o700 });
    await using keys = new MemoryKeySource();
    for (const audience of SERVICES) {
      const claim = { audience, scopes: scopesOf(audience), ttl_ms: 600_000 };
      tokens[audience] = (await mint(keys, claim, signal)).token;
    }
    await writeFile(file, JSON.stringify(tokens), { mode: 0o600 });
    await writeFile(join(dir, 'note.txt'), 'a note');
    const sig = { kid: 'me/docs/ed25519/x#v1', payload_b3: '', sigs: [] };
    await writeFile(join(dir, 'note.txt.sig'), JSON.stringify(sig));
    await mkdir(join(node, 'run'), { mode: 0o700 });
    const socketOf = (name: string): Promise<Listener> => Listener.open(cleanUps, join(node, 'run', `${name}.sock`));
    own = { storage: await socketOf('storage'), kms: await socketOf('kms'), passport: await socketOf('passport') };
    foreign = await Listener.open(cleanUps);
    port = await Listener.open(cleanUps);
    const services = { storage: port.url, kms: port.url, passport: port.url };
    // The pid of this test counts as a running node.
    const state = { pid: process.pid, started: new Date().toISOString(), services, pids: {} };
    await writeFile(join(node, 'node.json'), JSON.stringify(state), { mode: 0o600 });
  });
  after(() => cleanUps.run());

  const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Ended> =>
    ron(cleanUps, args, { cwd: dir, env, input: 'x' });
  const hasToken = ({ received }: Listener): boolean =>
    /authorization/i.test(received) || Object.values(tokens).some((token) => received.includes(token.slice(0, 60)));
  /** The tokens that a listener received. */
  const sentTo = ({ received }: Listener): Capability[] =>
    [...received.matchAll(/Bearer (\S+)/g)].map(([, token]) => inspectToken(token!));

  const commands: Record<string, readonly string[]> = {
    put: ['put', '-'],
    get: ['get', ZEROS],
    stat: ['stat', ZEROS],
    pin: ['pin', ZEROS],
    unpin: ['unpin', ZEROS],
    volumes: ['volumes'],
    repair: ['repair', 'status'],
    scrub: ['scrub'],
    'keys create': ['keys', 'create'],
    'keys list': ['keys', 'list'],
    sign: ['sign', 'note.txt', '--key', 'me/docs/ed25519/x'],
    'cap issue': ['cap', 'issue', '--scopes', 'storage:get'],
    'cap revoke': ['cap', 'revoke', 'alice'],
    'cap show': ['cap', 'show'],
  };
  for (const [name, args] of Object.entries(commands)) {
    test(`${name} --url sends no capability to a foreign server`, async () => {
      const ended = await run([...args, '--url', foreign.url]);
      assert.ok(!hasToken(foreign), `${name} sent it to the foreign server`);
      if (name === 'cap show') return;
      assert.equal(ended.code, 77, ended.stderr);
      assert.match(ended.stderr, /is sent only to services of its own node, and http.* is not one of them/);
    });
  }

  test('audit verify URL sends no capability to a foreign server, with and without --vkey', async () => {
    for (const more of [[], ['--vkey', vkey()]]) {
      const ended = await run(['audit', 'verify', `${foreign.url}/v1/kms/audit`, ...more]);
      assert.ok(!hasToken(foreign));
      assert.equal(ended.code, 77, ended.stderr);
    }
  });

  test('RON_URL and the URL of a stopped node are foreign too', async () => {
    await run(['put', '-'], { RON_URL: foreign.url });
    await run(['put', '-', '--url', foreign.url], { RON_CAPABILITY_FILE: file });
    await run(['put', '-', '--url', foreign.url], { RON_CAPABILITY_FILE: file, RON_URL: own.storage.url });
    assert.ok(!hasToken(foreign));
    const gone = join(dir, 'gone');
    await mkdir(gone, { mode: 0o700 });
    await writeFile(join(gone, 'root.cap'), JSON.stringify(tokens), { mode: 0o600 });
    const services = { storage: foreign.url };
    await writeFile(join(gone, 'node.json'), JSON.stringify({ pid: 2 ** 22 + 1, started: '', services, pids: {} }));
    await run(['put', '-', '--dir', gone, '--url', foreign.url]);
    assert.ok(!hasToken(foreign));
  });

  test('a node in a directory of another user, or behind a link, is not the own node', async (t) => {
    if (process.geteuid?.() !== 0) return t.skip('only root can give files to another user');
    const trap = await temporaryDir(cleanUps);
    const there = (name: string): string => join(trap, '.ron', name);
    await mkdir(there('run'), { recursive: true, mode: 0o700 });
    const listener = await Listener.open(cleanUps, there('run/kms.sock'));
    const state = { pid: process.pid, started: '', services: { kms: port.url }, pids: {} };
    await writeFile(there('node.json'), JSON.stringify(state));
    const attempt = (): Promise<Ended> =>
      ron(cleanUps, ['keys', 'list'], { cwd: trap, env: { RON_CAPABILITY_FILE: file } });
    await chown(there('run'), 65_534, 65_534);
    const foreignRun = await attempt();
    await chown(there('run'), 0, 0);
    await rename(there('run/kms.sock'), join(trap, 'kms.sock'));
    await symlink(join(trap, 'kms.sock'), there('run/kms.sock'));
    const link = await attempt();
    for (const { code, stderr } of [foreignRun, link]) {
      assert.equal(code, 77, stderr);
      assert.match(stderr, /another user could listen there/);
    }
    assert.equal(listener.received, '');
    return undefined;
  });

  test('a redirect does not forward the capability', async () => {
    const redirecting = await Listener.open(cleanUps, join(dir, 'redirecting.sock'));
    redirecting.redirect = foreign.url;
    await run(['stat', ZEROS, '--url', redirecting.url, '--capability-file', file]);
    assert.ok(hasToken(redirecting), 'it was named by --capability-file');
    own.kms.redirect = foreign.url;
    await run(['audit', 'verify', '--vkey', vkey()]);
    own.kms.redirect = undefined;
    assert.ok(!hasToken(foreign));
  });

  test('the own node is called at its sockets, even if its URL is given, and its port receives nothing', async () => {
    for (const url of [[], ['--url', port.url], ['--url', own.storage.url]]) {
      own.storage.received = '';
      await run(['put', '-', ...url]);
      assert.ok(hasToken(own.storage), url.join(' '));
    }
    await run(['audit', 'verify', `${port.url}/v1/kms/audit`, '--vkey', vkey()]);
    assert.ok(hasToken(own.kms));
    assert.equal(port.received, '');
  });

  test('a sent token is bound to its service, to a few seconds and to the body', async () => {
    await run(['cap', 'revoke', 'alice']);
    const [sent] = sentTo(own.passport).slice(-1);
    assert.equal(sent?.audience, 'passport');
    const left_ms = sent.expires_ms - Date.now();
    assert.ok(left_ms <= 30_000, `${left_ms} ms`);
    const body = Buffer.from(blake3(JSON.stringify({ subject: 'alice' }))).toString('hex');
    assert.deepEqual(
      sent.bodies.map(({ algorithm, hex }) => `${algorithm}:${hex}`),
      [`b3:${body}`],
    );
    // `cap show` sends the token that it asks about to passport.
    for (const { received } of [own.storage, own.kms, port, foreign])
      for (const token of Object.values(tokens)) assert.ok(!received.includes(token), 'a whole token was sent');
  });

  test('a socket that the user names receives the capability', async () => {
    const other = await Listener.open(cleanUps, join(dir, 'other.sock'));
    await run(['put', '-', '--url', other.url, '--capability-file', file]);
    assert.equal(sentTo(other).at(-1)?.audience, 'storage');
    await run(['keys', 'list'], { RON_URL: other.url, RON_CAPABILITY_FILE: file });
    assert.equal(sentTo(other).at(-1)?.audience, 'kms');
  });

  test('a capability that the user names is not sent over http, nor over https without a pin', async () => {
    const squatter = await Listener.open(cleanUps);
    const { port: number } = new URL(squatter.url);
    const refusals = [
      await run(['put', '-', '--url', squatter.url, '--capability-file', file]),
      await run(['keys', 'list'], { RON_URL: squatter.url, RON_CAPABILITY_FILE: file }),
      await run(['keys', 'list', '--url', squatter.url, '--capability-file', file, '--pin', 'ab'.repeat(32)]),
      await run(['keys', 'list', '--url', `https://localhost:${number}`, '--capability-file', file]),
      await run(['audit', 'verify', `${squatter.url}/v1/kms/audit`, '--vkey', vkey(), '--capability-file', file]),
    ];
    for (const { code, stderr } of refusals) {
      assert.equal(code, 77, stderr);
      assert.match(stderr, /refusing to send a capability to http.*: use unix:PATH, or https:\/\/ and --pin/);
    }
    assert.equal(squatter.received, '');
    const open = await run(['stat', ZEROS, '--url', squatter.url]);
    assert.equal(open.code, 77, 'the server answers 401');
    assert.match(squatter.received, /HEAD/, 'a read without a capability is sent');
    assert.ok(!hasToken(squatter));
  });

  test('a stopped node, a pin that is not one, and a URL that is not one are reported', async () => {
    const stopped = await run(['put', '-', '--dir', join(dir, 'stopped'), '--capability-file', file], {
      RON_URL: '',
    });
    assert.match(stopped.stderr, /storage is not running at|needs a capability/);
    const pin = await run(['keys', 'list', '--pin', 'nope']);
    assert.deepEqual([pin.code, /--pin must be the SHA-256/.test(pin.stderr)], [64, true]);
    for (const url of ['unix:relative', 'file:/x', 'ftp://x'])
      assert.equal((await run(['keys', 'list', '--url', url])).code, 64, url);
  });
});
