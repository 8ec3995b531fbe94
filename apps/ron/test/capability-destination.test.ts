/** Every command sends a capability only to services of the node that it belongs to. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { MemoryKeySource, mint } from '@ron/auth';
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

  static async open(cleanUps: CleanUps): Promise<Listener> {
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
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanUps.after(() => {
      server.close();
      server.closeAllConnections();
    });
    listener.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return listener;
  }
}

suite('capability destination', { concurrency: 3 }, () => {
  const cleanUps = new CleanUps();
  const tokens = {} as Record<Service, string>;
  let dir: string;
  let node: string;
  let file: string;
  let own: Listener;
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
    own = await Listener.open(cleanUps);
    foreign = await Listener.open(cleanUps);
    const services = { storage: own.url, kms: own.url, passport: own.url };
    // The pid of this test counts as a running node.
    const state = { pid: process.pid, started: new Date().toISOString(), services, pids: {} };
    await writeFile(join(node, 'node.json'), JSON.stringify(state), { mode: 0o600 });
  });
  after(() => cleanUps.run());

  const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Ended> =>
    ron(cleanUps, args, { cwd: dir, env, input: 'x' });
  const hasToken = ({ received }: Listener): boolean =>
    /authorization/i.test(received) || Object.values(tokens).some((token) => received.includes(token));

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
    await run(['put', '-', '--url', foreign.url], { RON_CAPABILITY_FILE: file, RON_URL: own.url });
    assert.ok(!hasToken(foreign));
    const gone = join(dir, 'gone');
    await mkdir(gone, { mode: 0o700 });
    await writeFile(join(gone, 'root.cap'), JSON.stringify(tokens), { mode: 0o600 });
    const services = { storage: foreign.url };
    await writeFile(join(gone, 'node.json'), JSON.stringify({ pid: 2 ** 22 + 1, started: '', services, pids: {} }));
    await run(['put', '-', '--dir', gone, '--url', foreign.url]);
    assert.ok(!hasToken(foreign));
  });

  test('a redirect does not forward the capability', async () => {
    const redirecting = await Listener.open(cleanUps);
    redirecting.redirect = foreign.url;
    await run(['audit', 'verify', `${redirecting.url}/v1/kms/audit`, '--vkey', vkey(), '--capability-file', file]);
    await run(['stat', ZEROS, '--url', redirecting.url, '--capability-file', file]);
    assert.ok(hasToken(redirecting), 'it was named by --capability-file');
    assert.ok(!hasToken(foreign));
  });

  test('the own node, and a server that the user names, receive the capability', async () => {
    await run(['put', '-']);
    assert.ok(own.received.includes(tokens.storage));
    await run(['audit', 'verify', `${own.url}/v1/kms/audit`]);
    assert.ok(own.received.includes(tokens.kms));
    const other = await Listener.open(cleanUps);
    await run(['put', '-', '--url', other.url, '--capability-file', file]);
    assert.ok(other.received.includes(tokens.storage));
    const usual = await Listener.open(cleanUps);
    await run(['keys', 'list'], { RON_URL: usual.url, RON_CAPABILITY_FILE: file });
    assert.ok(usual.received.includes(tokens.kms));
  });
});
