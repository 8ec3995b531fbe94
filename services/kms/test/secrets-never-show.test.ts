/** No log line, response, metric or file of kms contains a private byte. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { FileBackend, MemoryBackend, type Alg, type Backend } from '@ron/custody';
import { sched, installSched } from '@ron/kernel';
import type { Reply } from '@ron/testkit/service';
import { B3, path, startService } from './support.ts';

/** Records the random bytes that became keys while it is installed. Salts and ids are drawn too, but are public. */
function rememberRandomness(): { drawn: Uint8Array[]; stop: () => void } {
  const drawn: Uint8Array[] = [];
  const before = sched;
  const previous = installSched({
    ...before,
    randomBytes: (count) => {
      const bytes = before.randomBytes(count);
      const from = new Error('origin of the draw').stack ?? '';
      // A copy, because secrets are zeroed after use.
      if (from.includes('newSecret') || from.includes('routes/secrets')) drawn.push(Uint8Array.from(bytes));
      return bytes;
    },
  });
  return { drawn, stop: () => void installSched(previous) };
}

function filesIn(dir: string): string[] {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function assertAbsent(where: string, text: string | Buffer, secrets: readonly Uint8Array[]): void {
  const haystack = Buffer.isBuffer(text) ? text : Buffer.from(text);
  for (const secret of secrets) {
    const bytes = Buffer.from(secret);
    for (const form of [
      bytes,
      Buffer.from(bytes.toString('hex')),
      Buffer.from(bytes.toString('base64').slice(0, -2)),
      Buffer.from(bytes.toString('base64url').slice(0, -2)),
    ]) {
      assert.equal(haystack.includes(form), false, `${where} contains a secret`);
    }
  }
}

test('logs, errors, metrics, responses and files contain no private byte', async () => {
  const { drawn, stop } = rememberRandomness();
  try {
    await using kms = await startService();
    const replies: Reply[] = [];
    const secretReplies: Reply[] = [];
    const keep = async (reply: Promise<Reply>): Promise<Reply> => {
      replies.push(await reply);
      return await reply;
    };
    const post = (route: string, body?: unknown): Promise<Reply> => keep(kms.post(route, body));
    for (const alg of ['ed25519', 'ml-dsa-44', 'ml-dsa-65', 'ml-dsa-87', 'hybrid']) {
      const kid = await kms.create(alg);
      const { sigs } = (await post('/sign', { kid, payload_b3: B3 })).json;
      await post('/sign', { items: Array.from({ length: 8 }, () => ({ kid, payload_b3: B3 })) });
      await post('/verify', { kid, payload_b3: B3, sigs });
      await post(`/keys/${path(kid)}/rotate`, {});
      await post('/sign', { kid, payload_b3: B3 });
      await keep(kms.get(`/keys/${path(kid)}`));
    }
    const plaintext = Buffer.alloc(32, 0xa7);
    for (const alg of ['aes-256-gcm', 'x-wing']) {
      const kid = await kms.create(alg);
      const { wrapped_b64 } = (await post('/wrap', { kid, plaintext_key_b64: plaintext.toString('base64') })).json;
      secretReplies.push(await kms.post('/unwrap', { kid, wrapped_b64 }), await kms.post('/datakey', { kid }));
      await post('/unwrap', { kid, wrapped_b64: 'AAAA' });
    }
    const deriving = await kms.create('hmac-sha256');
    secretReplies.push(await kms.post('/derive', { kid: deriving, label: 'keys/storage/1' }));
    const derived = Buffer.from(secretReplies.at(-1)!.json.secret_b64, 'base64');
    await post('/sign', { kid: deriving, payload_b3: B3 });
    for (const route of ['/audit/checkpoint', '/audit/tile/entries/000.p/1', '/audit/proof/0', '/keys', '/attestation'])
      await keep(kms.get(route));
    for (const route of ['/metrics', '/readyz', '/healthz', '/version', '/openapi.json'])
      await keep(kms.send('GET', route));

    const secrets = [...drawn, plaintext, derived];
    assert.ok(drawn.length >= 15, 'the recorder saw the keys being created');
    for (const { text } of replies) assertAbsent('a response', text, secrets);
    assertAbsent('a log line', kms.lines.join('\n'), secrets);
    assertAbsent('the metrics', await kms.metrics.text(), secrets);
    assertAbsent('the printed form of the service', inspect(kms.kms, { depth: 12, showHidden: true }), secrets);
    for (const file of filesIn(kms.dir)) {
      // The keys that verify capabilities are in their own file, mode 0600.
      if (file.endsWith('/keys')) assert.equal(statSync(file).mode & 0o077, 0, file);
      else assertAbsent(file, readFileSync(file), secrets);
    }
    const log = kms.kms.vault.log!;
    for (let at = 0; at < log.size; at++) assertAbsent(`entry ${at}`, Buffer.from(await log.entry(at)), secrets);
    for (const { headers } of secretReplies) assert.equal(headers['cache-control'], 'no-store');
  } finally {
    stop();
  }
});

test('only the owner can read the files of the service', async () => {
  await using kms = await startService({ env: {} });
  await kms.create('ed25519');
  for (const file of filesIn(kms.dir)) {
    // A lock file is empty.
    if (!/lock(?:-journal)?$/.test(file)) assert.equal(statSync(file).mode & 0o077, 0, file);
  }
  assert.ok(
    kms.lines.some((line) => line.includes('RON_KEK')),
    'a key that is stored beside its data causes a warning',
  );
});

test('no backend has a method that returns a private key', () => {
  const methods = (backend: object): string[] => {
    const names = new Set<string>();
    for (
      let at: object | null = backend;
      at !== null && at !== Object.prototype;
      at = Object.getPrototypeOf(at) as object | null
    ) {
      for (const name of Object.getOwnPropertyNames(at)) names.add(name);
    }
    return [...names];
  };
  const known = new Set<keyof Backend | 'constructor' | 'version' | 'relock'>([
    'constructor',
    'name',
    'attestation_class',
    'attestationClassOf',
    'algs',
    'state',
    'create',
    'open',
    'destroy',
    'sign',
    'signMany',
    'wrap',
    'unwrap',
    'derive',
    'attest',
    'probe',
    'close',
    'version',
    'relock',
  ]);
  for (const backend of [new MemoryBackend(), FileBackend.prototype]) {
    for (const name of methods(backend)) assert.ok((known as Set<string>).has(name), name);
  }
  const alg: Alg = 'ed25519';
  assert.ok(new MemoryBackend().algs.has(alg));
});
