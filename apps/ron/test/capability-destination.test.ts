/** A capability is sent to the services of its own node and to nobody else, whatever the command. */
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

/** A well-formed key of a log that nobody has. */
function vkey(): string {
  const key = Buffer.concat([Buffer.of(1), Buffer.alloc(32, 7)]);
  const id = hash('sha256', Buffer.concat([Buffer.from('log\n'), key]), 'hex').slice(0, 8);
  return `log+${id}+${key.toString('base64')}`;
}

/** Takes everything down that it is sent, and allows nothing. */
class Listener {
  received = '';
  url = '';
  /** Where it sends whoever asks. */
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

suite('capabilities stay home', { concurrency: 3 }, () => {
  const cleanUps = new CleanUps();
  const tokens = {} as Record<Service, string>;
  let dir: string;
  let node: string;
  let file: string;
  let own: Listener;
  let stranger: Listener;

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
    stranger = await Listener.open(cleanUps);
    const services = { storage: own.url, kms: own.url, passport: own.url };
    // It runs as long as this test does.
    const state = { pid: process.pid, started: new Date().toISOString(), services, pids: {} };
    await writeFile(join(node, 'node.json'), JSON.stringify(state), { mode: 0o600 });
  });
  after(() => cleanUps.run());

  const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Ended> =>
    ron(cleanUps, args, { cwd: dir, env, input: 'x' });
  const isTold = ({ received }: Listener): boolean =>
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
    test(`${name} --url of a stranger`, async () => {
      const ended = await run([...args, '--url', stranger.url]);
      assert.ok(!isTold(stranger), `${name} told the stranger`);
      if (name === 'cap show') return;
      assert.equal(ended.code, 77, ended.stderr);
      assert.match(ended.stderr, /goes to the services of its own node only, and http.* is none of them/);
    });
  }

  test('audit verify URL of a stranger, with and without keys', async () => {
    for (const more of [[], ['--vkey', vkey()]]) {
      const ended = await run(['audit', 'verify', `${stranger.url}/v1/kms/audit`, ...more]);
      assert.ok(!isTold(stranger));
      assert.equal(ended.code, 77, ended.stderr);
    }
  });

  test('an address in the environment is no better, and one that the node no longer has neither', async () => {
    await run(['put', '-'], { RON_URL: stranger.url });
    await run(['put', '-', '--url', stranger.url], { RON_CAPABILITY_FILE: file });
    await run(['put', '-', '--url', stranger.url], { RON_CAPABILITY_FILE: file, RON_URL: own.url });
    assert.ok(!isTold(stranger));
    const gone = join(dir, 'gone');
    await mkdir(gone, { mode: 0o700 });
    await writeFile(join(gone, 'root.cap'), JSON.stringify(tokens), { mode: 0o600 });
    const services = { storage: stranger.url };
    await writeFile(join(gone, 'node.json'), JSON.stringify({ pid: 2 ** 22 + 1, started: '', services, pids: {} }));
    await run(['put', '-', '--dir', gone, '--url', stranger.url]);
    assert.ok(!isTold(stranger));
  });

  test('whoever redirects gets nothing sent on', async () => {
    const crooked = await Listener.open(cleanUps);
    crooked.redirect = stranger.url;
    await run(['audit', 'verify', `${crooked.url}/v1/kms/audit`, '--vkey', vkey(), '--capability-file', file]);
    await run(['stat', ZEROS, '--url', crooked.url, '--capability-file', file]);
    assert.ok(isTold(crooked), 'it was named');
    assert.ok(!isTold(stranger));
  });

  test('its own node, and whom the user names, get it', async () => {
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
