/** A whole node: edge fetches an asset, kms signs its log, and the commands explain and verify it. */
import assert from 'node:assert/strict';
import { X509Certificate, createHash } from 'node:crypto';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Authority, hostile, ok } from '@ron/egress/testing';
import type { EdgeWhyDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { command, temporaryDir, up } from './support.ts';

test('ron edge why names the source of a fill, and ron audit verify accepts its log', async (t) => {
  const work = await temporaryDir(t);
  using authority = new Authority();
  const ca_file = join(work, 'ca.pem');
  await writeFile(ca_file, authority.pem);
  const tls = authority.issue({ names: 'IP:127.0.0.1' });
  const reply = ok('tile', 'content-type: image/png', 'etag: "v7"', 'cache-control: max-age=60');
  await using origin = await hostile((socket) => void socket.write(reply), { tls });
  const host = `127.0.0.1:${origin.port}`;
  const settings = [
    'edge.edge.mode=live',
    `edge.fill.allow=https://${host}`,
    'edge.fill.networks=127.0.0.0/8',
    `edge.fill.ca_file=${ca_file}`,
  ];
  const dir = join(work, '.ron');
  const node = await up(t, dir, ['--only', 'kms,edge', ...settings.flatMap((each) => ['--set', each])]);
  const url = node.services['edge']!;
  const env = { RON_DIR: dir };
  for (const args of [[], ['--url', `unix:${join(dir, 'run', 'edge.sock')}`]]) {
    const empty = await command(['audit', 'verify', '--log', 'edge', ...args], env);
    assert.equal(empty.code, 66, empty.stderr);
    assert.match(empty.stderr, /edge has logged no fill yet: there is nothing to verify/);
  }
  const key = `live/${host}/a.png`;
  const got = await fetch(`${url}/edge/assets/${key}`);
  assert.equal(await got.text(), 'tile');

  const why = async (): Promise<EdgeWhyDto> => {
    const ended = await command(['edge', 'why', key, '--json'], env);
    assert.equal(ended.code, 0, ended.stderr);
    return JSON.parse(ended.text) as EdgeWhyDto;
  };
  await eventually('a checkpoint covers the fill', async () => (await why()).proof !== undefined);
  const found = await why();
  const spki = new X509Certificate(tls.cert).publicKey.export({ type: 'spki', format: 'der' });
  const { host: named, dialled, certificate_key, etag } = found.provenance!;
  const expected = [host, host, createHash('sha256').update(spki).digest('hex'), '"v7"'];
  assert.deepEqual([named, dialled, certificate_key, etag], expected);
  const text = (await command(['edge', 'why', key], env)).text;
  for (const each of [...expected, 'entry 0']) assert.ok(text.includes(each), `${each} is not in:\n${text}`);

  const fills = join(dir, 'edge', 'data', 'fills');
  const [vkey = ''] = (await readFile(join(fills, 'vkeys'), 'utf8')).split('\n');
  const keys = await command(['keys', 'list', '--json'], env);
  const { pubkey } = publicKeyOf(keys.text);
  assert.deepEqual(
    Buffer.from(vkey.split('+').slice(2).join('+'), 'base64').subarray(1),
    pubkey,
    'the key of kms signs the log',
  );

  const verified = await command(['audit', 'verify', '--log', 'edge'], env);
  assert.equal(verified.code, 0, verified.stderr);
  assert.match(verified.text, /^log +edge\/fills\/[0-9a-f]{16}$/m);
  assert.match(verified.text, /^entries +1, all verified$/m);
  const overHttp = await command(
    ['audit', 'verify', '--log', 'edge', '--url', `unix:${join(dir, 'run', 'edge.sock')}`],
    env,
  );
  assert.equal(overHttp.code, 0, overHttp.stderr);
  assert.match(overHttp.text, /^entries +1, all verified$/m);
  await writeFile(join(work, 'why.json'), JSON.stringify(found));
  const proven = await command(['audit', 'verify', '--proof', join(work, 'why.json'), '--vkey', vkey], env);
  assert.equal(proven.code, 0, proven.stderr);
  assert.match(proven.text, /entry 0 of 1, verified/);
  const ofKms = await command(['audit', 'verify'], env);
  // Kms signs its first checkpoint later.
  assert.match(ofKms.text + ofKms.stderr, /kms/);

  const copy = join(work, 'copy');
  await cp(fills, copy, { recursive: true });
  const bytes = await readFile(join(copy, 'entries'));
  bytes[bytes.indexOf('v7')] = 'w'.charCodeAt(0);
  await writeFile(join(copy, 'entries'), bytes);
  const damaged = await command(['audit', 'verify', copy], env);
  assert.equal(damaged.code, 65);
  assert.match(damaged.stderr, /damage at/);

  const purged = await command(['edge', 'purge', '--host', host, '--json'], env);
  assert.deepEqual(JSON.parse(purged.text), { host, removed: 1 });
  assert.equal((await why()).state, 'missing');
  assert.equal((await command(['audit', 'prune', '--log', 'edge', '--before', '1'], env)).code, 64);
});

/** The only key of the tenant `edge`. */
function publicKeyOf(text: string): { readonly pubkey: Buffer } {
  const keys = text
    .trim()
    .split('\n')
    .flatMap((line) => JSON.parse(line) as unknown)
    .flatMap((value) => ((value as { keys?: unknown[] }).keys ?? value) as unknown[]) as {
    kid: string;
    public: { pubkey_b64: string };
  }[];
  const [key, ...others] = keys.filter(({ kid }) => kid.startsWith('edge/raw/'));
  assert.equal(others.length, 0);
  return { pubkey: Buffer.from(key!.public.pubkey_b64, 'base64').subarray(-32) };
}
