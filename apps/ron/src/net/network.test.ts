/** Invitations, and the files of a network in the directory of a node. */
import assert from 'node:assert/strict';
import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { test, type TestContext } from 'node:test';
import { tempDir } from '@ron/testkit';
import { homeAt } from '../home.ts';
import { Io } from '../io.ts';
import { plan } from '../up/plan.ts';
import { SERVICE_TABLE } from '../up/table/services.ts';
import { parseInvite, readInvite, writeInvite, type Invite } from './invite-file.ts';
import { ensureNetworkKey, hasNetwork, joinNetwork, readNetwork } from './network.ts';
import { requestedNetwork } from './up-options.ts';

const PEER = '/ip4/127.0.0.1/tcp/7108/p2p/12D3KooWCiFmnCAoSgocp4d9Koeem9x4AS3n27TLXLAeAMaYdn3h';
const REMOTE = PEER.replace('127.0.0.1', '192.0.2.1');
const INVITE: Invite = { addresses: [PEER], network_key: 'ab'.repeat(32) };

async function inDir(t: TestContext): Promise<string> {
  const temp = await tempDir();
  t.after(() => temp[Symbol.asyncDispose]());
  return temp.path;
}

function captured(): { io: Io; notes: () => string } {
  let text = '';
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString();
      done();
    },
  }) as unknown as NodeJS.WriteStream;
  return { io: new Io({ stdout: stream, stderr: stream, env: {} }), notes: () => text };
}

test('an invitation is written for its owner only, and a file that others can read is refused', async (t) => {
  const file = join(await inDir(t), 'x.invite');
  await writeInvite(file, INVITE);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.deepEqual(await readInvite(file), INVITE);
  await chmod(file, 0o644);
  await assert.rejects(readInvite(file), { name: 'CliError', exit: 'no_input' });
});

test('malformed invitations are refused, and the error does not quote them', async (t) => {
  const file = join(await inDir(t), 'x.invite');
  const whole = { ron_invite: 1, ...INVITE };
  const bad: unknown[] = [
    { ...whole, ron_invite: 2 },
    { ...whole, addresses: [] },
    { ...whole, addresses: Array.from({ length: 65 }, () => PEER) },
    { ...whole, addresses: ['/dns4/example.com/tcp/1/p2p/12D3KooW'] },
    { ...whole, addresses: [`${PEER}\n--set`] },
    { ...whole, addresses: [PEER, PEER.replace('127.0.0.1', '999.1.1.1')] },
    { ...whole, addresses: [PEER, PEER.replace('7108', '99999')] },
    { ...whole, addresses: [PEER, PEER.replace('127.0.0.1', '::1')] },
    { ...whole, addresses: 'x' },
    { ...whole, network_key: 'AB'.repeat(32) },
    { ...whole, network_key: 7 },
    [],
    null,
  ];
  for (const value of bad) assert.equal(parseInvite(JSON.stringify(value)), undefined, JSON.stringify(value));
  for (let length = 0; length < JSON.stringify(whole).length; length++)
    assert.equal(parseInvite(JSON.stringify(whole).slice(0, length)), undefined);
  await writeFile(file, 'secret-text', { mode: 0o600 });
  await assert.rejects(readInvite(file), (error: Error) => !error.message.includes('secret-text'));
});

test('a node joins by an invitation, keeps earlier peers, and refuses another network', async (t) => {
  const home = homeAt(await inDir(t));
  assert.equal(hasNetwork(home), false);
  await joinNetwork(home, INVITE, '127.0.0.1');
  assert.equal(await ensureNetworkKey(home), INVITE.network_key);
  assert.match(await readFile(home.net.key, 'utf8'), /^\/key\/swarm\/psk\/1\.0\.0\/\n\/base16\/\n[0-9a-f]{64}\n$/);
  await joinNetwork(home, { ...INVITE, addresses: [REMOTE] }, '127.0.0.1');
  assert.deepEqual(readNetwork(home), { host: '127.0.0.1', bootstrap: [REMOTE, PEER] });
  const other = { ...INVITE, network_key: 'cd'.repeat(32) };
  await assert.rejects(joinNetwork(home, other, '127.0.0.1'), { message: /belongs to another network/ });
  for (const file of [home.net.key, home.net.network]) assert.equal((await stat(file)).mode & 0o777, 0o600);
});

test('a created network key is random and stays', async (t) => {
  const [one, two] = [homeAt(await inDir(t)), homeAt(await inDir(t))];
  const key = await ensureNetworkKey(one);
  assert.match(key, /^[0-9a-f]{64}$/);
  assert.equal(await ensureNetworkKey(one), key);
  assert.notEqual(await ensureNetworkKey(two), key);
});

test('a damaged network file is an error, not an empty network', async (t) => {
  const home = homeAt(await inDir(t));
  await joinNetwork(home, INVITE, '127.0.0.1');
  for (const text of ['', '{', '{"host":"x","bootstrap":[]}', '{"host":"127.0.0.1","bootstrap":["x"]}']) {
    await writeFile(home.net.network, text);
    assert.throws(() => readNetwork(home), { name: 'CliError', exit: 'config' }, text);
  }
});

test('beyond loopback, a start says that it opens the reads of storage, and binds storage there', async (t) => {
  const home = homeAt(await inDir(t));
  const { io, notes } = captured();
  await (await requestedNetwork({ host: '192.0.2.7' })).apply(home, io);
  assert.match(notes(), /192\.0\.2\.7: this opens the reads of storage, without a capability/);
  const flags = await flagsAt(home);
  assert.equal(flags('storage', 'server.bind'), '192.0.2.7:7101');
  assert.equal(flags('storage', 'server.open_beyond_loopback'), 'true');
  assert.equal(flags('index', 'index.storage_url'), 'http://192.0.2.7:7101');
  assert.equal(flags('index', 'dht.listen'), '/ip4/192.0.2.7/tcp/7108');
  assert.equal(flags('index', 'server.bind'), '127.0.0.1:7102');
  assert.equal(flags('index', 'dht.mode'), undefined);
});

test('on loopback, a start opens nothing and joins with the key and the peers of the invitation', async (t) => {
  const dir = await inDir(t);
  const home = homeAt(join(dir, 'node'));
  const file = join(dir, 'x.invite');
  await writeInvite(file, INVITE);
  const { io, notes } = captured();
  await (await requestedNetwork({ join: file })).apply(home, io);
  assert.equal(notes(), '');
  const flags = await flagsAt(home);
  assert.equal(flags('storage', 'server.bind'), '127.0.0.1:7101');
  assert.equal(flags('storage', 'server.open_beyond_loopback'), undefined);
  assert.equal(flags('index', 'dht.mode'), 'join');
  assert.equal(flags('index', 'dht.network_key_file'), home.net.key);
  assert.equal(flags('index', 'dht.bootstrap'), PEER);
});

test('--host must be an IP address', async () => {
  await assert.rejects(requestedNetwork({ host: 'example.com' }), { exit: 'usage' });
});

/** The planned value of a key, by service. */
async function flagsAt(home: ReturnType<typeof homeAt>): Promise<(service: string, key: string) => string | undefined> {
  const planned = await plan({ place: { home, base_port: 7100, amnesia: false }, table: SERVICE_TABLE, env: {} });
  return (service, key) => planned.find(({ entry }) => entry.name === service)!.value(key);
}
