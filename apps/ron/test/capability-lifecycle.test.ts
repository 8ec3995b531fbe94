/** Capabilities from issue to revocation, with each service as a separate process that can be killed. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { attenuate, AUDIENCE_ROOT, DerivedKeySource, mint, type MintInit } from '@ron/auth';
import { KmsDeriver } from '@ron/auth/service';
import { PassportClient } from '@ron/client';
import type { Service } from '@ron/proto';
import { homeAt, socketUrl, type Home } from '../src/home.ts';
import { NodeCapabilities } from '../src/up/capabilities/node-capabilities.ts';
import { plan, type Planned } from '../src/up/plan.ts';
import { SERVICE_TABLE } from '../src/up/table/services.ts';
import { leaks } from '@ron/auth/testing';
import { eventually } from '@ron/testkit';
import { CleanUps, temporaryDir } from './support.ts';

const NEVER = new AbortController().signal;
/** A revocation must be in force everywhere within this time. */
const REVOKED_MS_MAX = 2000;

/** One service process. */
class Running {
  readonly url: string;
  readonly #child: ChildProcess;

  constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill(signal);
    await exit;
  }
}

class TestNode {
  readonly home: Home;
  readonly running = new Map<Service, Running>();
  readonly #planned: readonly Planned[];
  readonly #capabilities: NodeCapabilities;
  /** Everything that any service logged. */
  logs = '';

  constructor(home: Home, planned: readonly Planned[]) {
    this.home = home;
    this.#planned = planned;
    this.#capabilities = new NodeCapabilities(home, planned, SERVICE_TABLE, { note: (text) => (this.logs += text) });
  }

  static async at(dir: string): Promise<TestNode> {
    const home = homeAt(dir);
    const place = { home, base_port: 0, amnesia: false };
    const set = ['storage.log.level=debug', 'passport.log.level=debug'];
    const node = new TestNode(home, await plan({ place, table: SERVICE_TABLE, set, env: {} }));
    await node.#capabilities.prepare(NEVER);
    return node;
  }

  async start(name: Service): Promise<Running> {
    const { entry, flags } = this.#planned.find((each) => each.entry.name === name)!;
    const child = spawn(process.execPath, [entry.main, ...flags], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.logs += text));
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    await eventually(`${name} is ready`, () => {
      assert.equal(child.exitCode, null, this.logs);
      return out.includes('\n');
    });
    const { url } = JSON.parse(out.split('\n')[0]!) as { url: string };
    const running = new Running(child, url);
    this.running.set(name, running);
    await this.#capabilities.onListening(name, true, NEVER);
    return running;
  }

  /** Renews the capabilities as if the service had restarted. */
  async listensAgain(name: Service): Promise<void> {
    // As after a restart of `ron up`: without known keys and open connections.
    await this.#capabilities.close();
    await this.#capabilities.onListening(name, true, NEVER);
  }

  url(name: Service): string {
    return this.running.get(name)!.url;
  }

  async token(audience: Service): Promise<string> {
    return (JSON.parse(await readFile(this.home.capability, 'utf8')) as Record<Service, string>)[audience];
  }

  /** The keys as the owner of kms derives them. */
  keys(): DerivedKeySource {
    const capability = async (): Promise<string> => (await readFile(this.home.of('kms').owner, 'utf8')).trim();
    return new DerivedKeySource({
      deriver: new KmsDeriver({ url: socketUrl(this.home, 'kms'), capability }),
    });
  }

  /** Mints like the node does for its owner, without passport. */
  async mint(init: Partial<MintInit> = {}): Promise<string> {
    await using keys = this.keys();
    const owner = { subject: 'root', scopes: ['storage:get', 'storage:put'] } as const;
    const all = { audience: 'storage', ttl_ms: 600_000, ...owner } as const;
    return (await mint(keys, { ...all, epoch: Date.now(), ...init }, NEVER)).token;
  }

  /** The answer of storage to a write with this token. */
  async put(token: string, body = 'hello'): Promise<{ status: number; text: string }> {
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/octet-stream' };
    const reply = await fetch(`${this.url('storage')}/o`, { method: 'POST', headers, body });
    // 200: the same bytes were stored before.
    return { status: reply.ok ? 201 : reply.status, text: await reply.text() };
  }

  /** The entries of the audit log that a checkpoint covers. */
  async entries(): Promise<Record<string, unknown>[]> {
    const found: Record<string, unknown>[] = [];
    for (let index = 0; ; index++) {
      const reply = await this.kms('GET', `/audit/proof/${index}`);
      if (!reply.ok) return found;
      const { entry_b64 } = (await reply.json()) as { entry_b64: string };
      found.push(JSON.parse(Buffer.from(entry_b64, 'base64').toString()) as Record<string, unknown>);
    }
  }

  async kms(method: string, path: string, body?: unknown): Promise<Response> {
    const headers = { Authorization: `Bearer ${await this.token('kms')}`, 'Content-Type': 'application/json' };
    return await fetch(`${this.url('kms')}/v1/kms${path}`, { method, headers, body: JSON.stringify(body) });
  }
}

suite('capability lifecycle', () => {
  const cleanUps = new CleanUps();
  let node: TestNode;
  let passport: PassportClient;

  before(async () => {
    node = await TestNode.at(join(await temporaryDir(cleanUps), 'node'));
    await node.start('kms');
    await Promise.all([node.start('passport'), node.start('storage')]);
    passport = new PassportClient({ url: node.url('passport'), capability: await node.token('passport') });
  });
  after(async () => {
    const metricsOf = async (url: string): Promise<string> => await (await fetch(`${url}/metrics`)).text();
    // A failed test may leave a service stopped; the others must end nevertheless.
    for (const { url } of node.running.values()) leaks.shown('metrics', await metricsOf(url).catch(() => ''));
    for (const running of node.running.values()) await running.kill('SIGTERM');
    leaks.shown('the log of a process', node.logs);
    await cleanUps.run();
  });

  test('a capability minted through kms is accepted; forged, foreign, expired and replayed ones are refused', async () => {
    const token = await node.token('storage');
    assert.equal((await node.put(token)).status, 201);
    const forged = `${token.slice(0, -2)}${token.endsWith('AA') ? 'BB' : 'AA'}`;
    assert.equal((await node.put(forged)).status, 401);
    assert.equal((await node.put(await node.token('kms'))).status, 401);
    assert.equal((await node.put(attenuate(token, [`expires < ${Date.now() - 1}`]))).status, 401);
    assert.equal((await node.put(attenuate(token, ['scopes in storage:get']))).status, 403);
    const bound = attenuate(token, [`body = sha256:${hash('sha256', 'this one', 'hex')}`]);
    assert.equal((await node.put(bound, 'this one')).status, 201);
    assert.equal((await node.put(bound, 'another')).status, 403, 'replayed with another body');
    const widened = attenuate(attenuate(token, ['scopes in storage:get']), ['scopes in storage:get,storage:put']);
    assert.equal((await node.put(widened)).status, 403);
  });

  test('a kms that is busy at first does not fail the start', async (t) => {
    let requests = 0;
    const busy = createServer((request, response) => {
      requests += 1;
      const send = (status: number, type: string, text: string): void => {
        response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) }).end(text);
      };
      void (async () => {
        const body = Buffer.concat(await request.toArray());
        const problem = { code: 'not_ready', status: 503, retryable: true };
        if (requests <= 3) return send(503, 'application/problem+json', JSON.stringify(problem));
        const headers = { Authorization: request.headers.authorization!, 'Content-Type': 'application/json' };
        const init = request.method === 'POST' ? { method: 'POST', headers, body } : { headers };
        const answer = await fetch(`${node.url('kms')}${request.url}`, init);
        send(answer.status, 'application/json', await answer.text());
      })();
    });
    // In place of the socket of kms, which listens at its port too.
    const { socket } = node.home.of('kms');
    await rename(socket, `${socket}.kms`);
    busy.listen(socket);
    await once(busy, 'listening');
    t.after(async () => {
      busy.close();
      busy.closeAllConnections();
      await rename(`${socket}.kms`, socket);
    });
    const capability = node.home.of('storage').capabilityFor('kms');
    const old = await readFile(capability, 'utf8');
    await writeFile(capability, 'AAAA\n', { mode: 0o600 });
    await node.listensAgain('kms');
    assert.ok(requests > 3);
    assert.notEqual(await readFile(capability, 'utf8'), 'AAAA\n');
    assert.notEqual(await readFile(capability, 'utf8'), old);
  });

  test('a service can derive its own keys and no others, and cannot change their root', async () => {
    const capability = (await readFile(node.home.of('storage').capabilityFor('kms'), 'utf8')).trim();
    const statusOf = async (path: string, body?: unknown): Promise<number> =>
      (
        await fetch(`${node.url('kms')}/v1/kms/${path}`, {
          method: body === undefined ? 'GET' : 'POST',
          headers: { Authorization: `Bearer ${capability}`, 'Content-Type': 'application/json' },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        })
      ).status;
    assert.equal(await statusOf('audience/derive', { audience: 'storage' }), 200);
    assert.equal(await statusOf('audience/derive', { audience: 'storage', version: 1 }), 200);
    assert.equal(await statusOf('audience'), 200);
    for (const audience of ['kms', 'passport', 'index']) {
      assert.equal(await statusOf('audience/derive', { audience }), 403);
      assert.equal(await statusOf('audience/derive', { audience, version: 1 }), 403);
    }
    assert.equal(await statusOf('audience/rotate', { version: 1 }), 403);
    assert.equal(await statusOf('audience/retire', { min_version: 1 }), 403);
    assert.equal(await statusOf('derive', { kid: AUDIENCE_ROOT, label: 'audience/storage/v1' }), 403);
  });

  test('an issued capability is accepted, and refused within two seconds of its revocation, even after a restart', async () => {
    const scopes = ['storage:put'];
    const alice = await passport.issue({ audience: 'storage', scopes, subject: 'alice', ttl_ms: 3_600_000 });
    const bob = await passport.issue({ audience: 'storage', scopes, ttl_ms: 3_600_000 });
    assert.equal((await node.put(alice.token)).status, 201);
    assert.equal((await node.put(bob.token)).status, 201);
    await passport.revoke({ subject: 'alice' });
    const began_ms = performance.now();
    await eventually('the revoked capability is refused', async () => (await node.put(alice.token)).status === 401);
    const took_ms = performance.now() - began_ms;
    assert.ok(took_ms < REVOKED_MS_MAX, `it took ${took_ms} ms`);
    assert.match((await node.put(alice.token)).text, /capability was revoked/);
    assert.equal((await node.put(bob.token)).status, 201, 'another subject is not affected');
    const again = await passport.issue({ audience: 'storage', scopes, subject: 'alice' });
    assert.equal((await node.put(again.token)).status, 201, 'a capability issued afterwards is valid');
    const verdict = await passport.verify({ token: alice.token });
    assert.deepEqual(verdict, { ok: false, reason: 'capability was revoked' });

    const carol = await passport.issue({ audience: 'storage', scopes, subject: 'carol' });
    assert.equal((await node.put(carol.token)).status, 201);
    await node.running.get('storage')!.kill();
    await passport.revoke({ subject: 'carol' });
    await node.running.get('passport')!.kill();
    await node.start('storage');
    // Storage missed the last revocation, so it cannot tell which capabilities are revoked.
    for (const { token } of [alice, bob, carol]) {
      const refused = await node.put(token);
      assert.equal(refused.status, 503, refused.text);
      assert.match(refused.text, /no answer from passport since the start/);
    }
    assert.equal((await node.put(await node.token('storage'))).status, 201, 'the owner is not affected');
    await node.start('passport');
    await eventually('valid capabilities are accepted again', async () => (await node.put(bob.token)).status === 201);
    assert.equal((await node.put(alice.token)).status, 401);
    assert.equal((await node.put(carol.token)).status, 401, 'the first poll returns the missed revocations');
    passport = new PassportClient({ url: node.url('passport'), capability: await node.token('passport') });
    assert.equal(
      (await passport.verify({ token: alice.token })).ok,
      false,
      'passport keeps revocations across a restart',
    );
    assert.equal((await passport.verify({ token: bob.token })).ok, true);
  });

  test('issuing and revoking are entries of the audit log; without kms nothing is issued, and revoking works', async () => {
    const issued = await passport.issue({ audience: 'storage', scopes: ['storage:put'], subject: 'dave' });
    const { capability_id } = issued;
    assert.equal((await node.put(issued.token)).status, 201);
    const entryOf = async (op: string): Promise<Record<string, unknown> | undefined> =>
      (await node.entries()).find((each) => each['op'] === op && each['target_id'] === capability_id);
    await eventually('a checkpoint covers it', async () => (await entryOf('issue')) !== undefined);
    const entry = await entryOf('issue');
    assert.deepEqual([entry?.['service'], entry?.['subject'], entry?.['target_subject']], ['passport', 'root', 'dave']);
    await node.running.get('kms')!.kill();
    const wanted = { audience: 'storage', scopes: ['storage:put'], subject: 'erin' };
    await assert.rejects(passport.issue(wanted), { code: 'not_ready', message: /nothing was issued/ });
    await passport.revoke({ capability_id });
    await eventually('it is refused', async () => (await node.put(issued.token)).status === 401);
    await node.start('kms');
    await node.running.get('passport')!.kill();
    await node.start('passport');
    passport = new PassportClient({ url: node.url('passport'), capability: await node.token('passport') });
    await eventually('the entry of the revocation is delivered', async () => (await entryOf('revoke')) !== undefined);
    const all = await node.entries();
    assert.equal(all.filter((each) => each['op'] === 'revoke' && each['target_id'] === capability_id).length, 1);
    assert.ok(!all.some((each) => each['target_subject'] === 'erin'));
  });

  test('a rotated root is accepted at its first use, and a retired root is refused within two seconds', async () => {
    const old = await node.mint();
    assert.equal((await node.put(old)).status, 201);
    const rotated = await node.kms('POST', '/audience/rotate', { version: 1 });
    assert.equal(rotated.status, 200, await rotated.text());
    assert.equal((await node.kms('POST', '/audience/rotate', { version: 1 })).status, 200, 'a retry rotates once');
    const fresh = await node.mint();
    await eventually('the new key is known', async () => (await node.put(fresh)).status === 201);
    assert.equal((await node.put(old)).status, 201, 'the previous key is still valid');
    const retired = await node.kms('POST', '/audience/retire', { min_version: 2 });
    const began_ms = performance.now();
    assert.equal(retired.status, 200, await retired.text());
    await eventually('the old key is refused', async () => (await node.put(old)).status === 401);
    const took_ms = performance.now() - began_ms;
    assert.ok(took_ms < REVOKED_MS_MAX, `it took ${took_ms} ms`);
    assert.equal((await node.put(fresh)).status, 201);
    const lower = async (): Promise<number> => (await node.kms('POST', '/audience/retire', { min_version: 1 })).status;
    await eventually("the owner's capability is refused too", async () => (await lower()) === 401);
    await node.listensAgain('kms');
    assert.equal(await lower(), 409, 'a retired version stays retired');
  });

  test('while kms is down, storage works, restarts, and verifies with its sealed cache', async () => {
    const token = await node.mint();
    await eventually('it is known', async () => (await node.put(token)).status === 201);
    await using keys = node.keys();
    const secret = Buffer.from((await keys.current('storage', NEVER)).key);
    await node.running.get('kms')!.kill();
    await node.running.get('storage')!.kill();
    const storage = await node.start('storage');
    assert.equal((await node.put(token)).status, 201);
    assert.equal((await node.put(`${token.slice(0, -2)}AA`)).status, 401);
    await eventually('readyz names kms', async () => {
      const reply = await fetch(`${storage.url}/readyz`);
      assert.equal(reply.status, 200);
      return ((await reply.json()) as { degraded: string[] }).degraded.includes('kms');
    });

    await assertNoSecrets(node, [secret], [token]);
    await node.start('kms');
    assert.equal((await node.put(await node.mint())).status, 201);
  });
});

/** Searches logs, metrics and files for secrets. */
async function assertNoSecrets(node: TestNode, keys: readonly Buffer[], tokens: readonly string[]): Promise<void> {
  const spellings = keys.flatMap((key) => [key.toString('hex'), key.toString('base64'), key.toString('base64url')]);
  const metrics = await Promise.all(
    (['storage', 'passport'] as const).map(async (name) => await (await fetch(`${node.url(name)}/metrics`)).text()),
  );
  const seen = [node.logs, ...metrics].join('\n');
  for (const secret of [...spellings, ...tokens]) assert.ok(!seen.includes(secret), 'a secret in a log or metric');
  for (const name of await readdir(node.home.dir, { recursive: true })) {
    const bytes = await readFile(join(node.home.dir, name)).catch(() => Buffer.alloc(0));
    for (const key of [...keys, ...spellings.map((text) => Buffer.from(text))])
      assert.ok(!bytes.includes(key), `a plaintext key in ${name}`);
  }
}
