/** `ron up` with the real services. */
import assert from 'node:assert/strict';
import { chmod, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { assertSameBytes, bytesOf, eventually } from '@ron/testkit';
import { homeAt, isAlive } from '../src/home.ts';
import { callFiles } from '../src/up/table/capability-files.ts';
import { SERVICE_TABLE } from '../src/up/table/services.ts';
import { command, Process, ron, temporaryDir, up } from './support.ts';

interface State {
  readonly pid: number;
  readonly services: Record<string, string>;
  readonly pids: Record<string, number>;
}

/** Those of the calls of the table, and that of the owner of kms. */
const CAPABILITIES_OK = new RegExp(
  `^ok {4}${callFiles(homeAt(''), SERVICE_TABLE).length + 1} capabilities of services, valid for 59 minutes$`,
  'm',
);

const stateOf = async (dir: string): Promise<State> =>
  JSON.parse(await readFile(join(dir, 'node.json'), 'utf8')) as State;
const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;

suite('ron up', { concurrency: 3 }, () => {
  test('prints each URL, protects its secrets, and Ctrl-C stops all processes', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const cache = await temporaryDir(t);
    const env = { NODE_COMPILE_CACHE: undefined, XDG_CACHE_HOME: cache };
    const node = new Process(t, ['up', '--dir', dir, '--base-port', '0'], { env });
    await node.until('ready', () => node.stdout.includes('Ctrl-C'));
    const { pid, services, pids } = await stateOf(dir);
    const lines = node.stdout.split('\n');
    const names = Object.keys(services);
    // They are printed in the order in which they became ready.
    const printed = lines.slice(0, names.length).toSorted();
    for (const [at, name] of names.toSorted().entries()) {
      assert.match(printed[at]!, new RegExp(`^${name} +${services[name]}  pid ${pids[name]}, [0-9.]+ s$`));
    }
    const [ready, capability] = lines.slice(names.length);
    assert.equal(ready, `ready  ${services['storage']}`);
    assert.equal(capability, `       capability in ${join(dir, 'root.cap')}, stop with Ctrl-C`);
    assert.equal(pid, node.child.pid);

    assert.equal(await modeOf(dir), 0o700);
    assert.equal(await modeOf(join(dir, 'run')), 0o700);
    for (const name of names) assert.equal(await modeOf(join(dir, 'run', `${name}.sock`)), 0o600);
    const sealed = ['kms/data/vault/data.mdb', 'kms/auth/cache', 'storage/auth/cache', 'passport/auth/cache'];
    for (const file of ['root.cap', 'node.json', 'kms/owner.cap', 'storage/kms.cap', 'passport/kms.cap', ...sealed])
      assert.equal(await modeOf(join(dir, file)), 0o600, file);
    for (const file of ['keys', 'storage/keys'])
      await assert.rejects(stat(join(dir, file)), { code: 'ENOENT' }, 'with kms no key is on disk');
    assert.deepEqual(
      Object.keys(JSON.parse(await readFile(join(dir, 'root.cap'), 'utf8')) as object),
      SERVICE_TABLE.map(({ name }) => name),
    );
    assert.match(await readFile(join(dir, 'logs/storage.log'), 'utf8'), /"msg":"ready"/);
    assert.ok((await readdir(join(cache, 'ron/compiled'))).length > 0, 'the services share a compile cache');
    assert.equal(await modeOf(join(cache, 'ron/compiled')), 0o700, 'a user who can write there can run code here');

    node.kill('SIGINT');
    const ended = await node.ended;
    assert.equal(ended.code, 0, ended.stderr);
    assert.equal(
      ended.stderr,
      'draining edge, interop\ndraining storage, index, mailbox\ndraining passport\ndraining kms\n',
      'callees drain after their callers',
    );
    assert.ok(!isAlive(pids['storage']!));
    await assert.rejects(stateOf(dir), { code: 'ENOENT' });
  });

  test('a killed service is restarted at the same URL', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = await up(t, dir);
    const url = node.services['storage'];
    const put = await ron(t, ['put', '-', '--dir', dir], { input: 'before' });
    process.kill(node.pids['storage']!, 'SIGKILL');
    await eventually('node.json has the new pid', async () => {
      const { pids, services } = await stateOf(dir);
      return pids['storage'] !== node.pids['storage'] && services['storage'] === url;
    });
    const get = await command(['get', put.text.trim(), '--dir', dir]);
    assert.equal(get.text, 'before', get.stderr);
    assert.equal((await ron(t, ['put', '-', '--dir', dir], { input: 'after' })).code, 0);
    node.process.kill('SIGTERM');
    assert.equal((await node.process.ended).code, 0);
  });

  test('services exit when ron up is killed by SIGKILL, and the next ron up starts on the same data', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = await up(t, dir);
    const content = bytesOf(100_000);
    const put = await ron(t, ['put', '-', '--dir', dir], { input: content });
    node.process.kill('SIGKILL');
    await node.process.ended;
    const again = await up(t, dir);
    assert.ok(!isAlive(node.pids['storage']!), 'the old process is gone before the new one starts');
    assertSameBytes((await command(['get', put.text.trim(), '--dir', again.dir])).stdout, content);
  });

  test('a second ron up in the same directory is refused, and the error names the pid', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = await up(t, dir);
    const second = await ron(t, ['up', '--dir', dir, '--base-port', '0']);
    assert.equal(second.code, 69);
    assert.match(second.stderr, new RegExp(`is in use by \`ron up\` \\(pid ${node.process.child.pid}, since 20`));
    assert.ok(isAlive(node.pids['storage']!));
    assert.equal((await stateOf(dir)).pid, node.process.child.pid);
  });

  test('an invalid configuration fails the start with 78 and lists the problems', async (t) => {
    const dir = await temporaryDir(t);
    const bad = await ron(t, [
      'up',
      '--dir',
      join(dir, 'node'),
      '--base-port',
      '0',
      '--set',
      'storage.server.max_inflght=5',
    ]);
    assert.equal(bad.code, 78);
    assert.match(bad.stderr, /storage failed to start: it exited with code 78/);
    assert.match(bad.stderr, /--server\.max_inflght: .*did you mean --server\.max_inflight\?/);
    await writeFile(join(dir, 'ron.toml'), '[storag]\nread_timeout = "1s"\n');
    const table = await command(['config', 'check', '--config', join(dir, 'ron.toml')]);
    assert.equal(table.code, 78);
    assert.match(table.stderr, /unknown service "storag": did you mean \[storage\]\?/);
  });

  test('a port in use fails the start with 69 and one sentence, before any service is started', async (t) => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    t.after(() => void holder.close());
    const { port } = holder.address() as AddressInfo;
    const dir = join(await temporaryDir(t), 'node');
    const ended = await ron(t, ['up', '--dir', dir, '--base-port', String(port - 1)]);
    assert.equal(ended.code, 69);
    const why = `cannot listen at 127.0.0.1:${port} (EADDRINUSE): the port is in use, perhaps by another node: `;
    assert.equal(ended.stderr, `ron: ${why}choose other ports with --base-port\n`);
  });

  test('--set overrides the file, the file overrides the defaults of ron up, and SIGHUP reloads it', async (t) => {
    const dir = await temporaryDir(t);
    const config = join(dir, 'ron.toml');
    const data = join(dir, 'elsewhere');
    await writeFile(config, `[storage]\ndata_dirs = ["${data}"]\nread_timeout = "3s"\n`);
    const args = ['--config', config, '--set', 'storage.read_timeout=4s'];
    const node = await up(t, join(dir, 'node'), args);
    assert.ok((await readdir(data)).includes('segments'), 'the directory of the file is used');
    await assert.rejects(stat(join(dir, 'node/storage/data')), { code: 'ENOENT' });
    const printed = await command(['config', 'print', '--dir', join(dir, 'node'), ...args]);
    assert.match(printed.text, /^\[storage\]\n/);
    assert.match(printed.text, /\nread_timeout = "4s"\n/);
    assert.match(printed.text, /\ndata_dirs = \[".*elsewhere"\]\n/);

    await writeFile(config, `[storage]\ndata_dirs = ["${data}"]\nread_timeout = "3s"\nlog.level = "debug"\n`);
    node.process.kill('SIGHUP');
    const log = join(dir, 'node/logs/storage.log');
    await eventually('storage reloaded its configuration', async () =>
      (await readFile(log, 'utf8')).includes('configuration reloaded'),
    );
  });

  test('a stop signal to all processes of the node drains it: an upload in progress is acknowledged', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = new Process(t, ['up', '--dir', dir, '--base-port', '0']);
    await node.until('ready', () => node.stdout.includes('Ctrl-C'));
    const { pid, services, pids } = await stateOf(dir);
    const { storage } = JSON.parse(await readFile(join(dir, 'root.cap'), 'utf8')) as { storage: string };
    const rest = Promise.withResolvers<void>();
    const body = async function* (): AsyncGenerator<Uint8Array, void, void> {
      yield Buffer.from('first half, ');
      await rest.promise;
      yield Buffer.from('second half');
    };
    const headers = { authorization: `Bearer ${storage}` };
    const put = fetch(`${services['storage']}/o`, {
      method: 'POST',
      headers,
      body: body(),
      duplex: 'half',
    });
    const log = join(dir, 'logs/storage.log');
    await eventually('the upload is in progress', async () => {
      const metrics = await (await fetch(`${services['storage']}/metrics`)).text();
      return /^http_requests_inflight 1$/m.test(metrics);
    });
    for (const each of [pid, ...Object.values(pids)]) process.kill(each, 'SIGTERM');
    await eventually('storage drains', async () => (await readFile(log, 'utf8')).includes('draining'));
    rest.resolve();
    assert.equal((await put).status, 201);
    await eventually('the node is gone', () => !isAlive(pid));
    assert.doesNotMatch(await readFile(log, 'utf8'), /aborting/);
  });

  test('amnesia: objects work, are never written to disk, and no file is left', async (t) => {
    const dir = await temporaryDir(t);
    const node = new Process(t, ['up', '--amnesia', '--json', '--base-port', '0'], { env: { XDG_RUNTIME_DIR: dir } });
    const line = await node.until('ready', () => node.stdout.includes('\n') && node.stdout);
    const { capability_file } = JSON.parse(line) as { capability_file: string };
    const home = join(capability_file, '..');
    assert.ok(home.startsWith(join(dir, 'ron-')));
    const put = await ron(t, ['put', '-', '--dir', home], { input: 'forget me' });
    assert.equal((await command(['get', put.text.trim(), '--dir', home])).text, 'forget me');
    const files = await readdir(home, { recursive: true });
    const callers = callFiles(homeAt(''), SERVICE_TABLE).map(({ path }) => path);
    const capabilities = ['root.cap', 'kms/owner.cap', ...callers];
    const names = SERVICE_TABLE.map(({ name }) => name);
    const places = ['run', ...names, ...names.map((name) => `run/${name}.sock`)];
    const expected = ['lock', 'lock-journal', 'node.json', ...capabilities, ...places].toSorted();
    assert.deepEqual(files.toSorted(), expected);
    const invited = await command(['net', 'invite', '-o', join(dir, 'invite'), '--dir', home]);
    assert.equal(invited.code, 1);
    assert.match(invited.stderr, /has joined no network.*start it with `ron up --amnesia --network`/);
    assert.deepEqual((await readdir(home, { recursive: true })).toSorted(), expected, 'no key is created');
    node.kill('SIGINT');
    assert.equal((await node.ended).code, 0);
    assert.deepEqual(await readdir(dir), []);
  });

  test('amnesia: a network ends with the node; after a crash of kms, owner and services get new capabilities', async (t) => {
    const dir = await temporaryDir(t);
    const node = await up(t, join(dir, 'node'), ['--amnesia', '--network']);
    assert.equal((await ron(t, ['put', '-', '--dir', node.dir], { input: 'before' })).code, 0);
    const invite = join(dir, 'invite');
    await eventually('the node invites', async () => {
      return (await command(['net', 'invite', '-o', invite, '--dir', node.dir])).code === 0;
    });
    const { network_key } = JSON.parse(await readFile(invite, 'utf8')) as { network_key: string };
    assert.ok((await readFile(join(node.dir, 'run', 'net', 'key'), 'utf8')).includes(network_key));
    assert.ok(isAlive(node.pids['index']!), 'index was not restarted');
    const old = await readFile(join(node.dir, 'root.cap'), 'utf8');
    process.kill(node.pids['kms']!, 'SIGKILL');
    await eventually(
      'the capability is renewed',
      async () => (await readFile(join(node.dir, 'root.cap'), 'utf8')) !== old,
    );
    await eventually('it is accepted', async () => {
      return (await ron(t, ['put', '-', '--dir', node.dir], { input: 'after' })).code === 0;
    });
    node.process.kill('SIGINT');
    assert.equal((await node.process.ended).code, 0);
    const left = await readdir(node.dir, { recursive: true });
    assert.deepEqual(
      left.filter((path) => path.includes('net')),
      [],
      'the key of the network is forgotten',
    );
  });

  test('secret files that other users can read are refused, and the mode of the directory is corrected', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    await mkdir(dir, { mode: 0o755 });
    const node = await up(t, dir);
    assert.equal(await modeOf(dir), 0o700);
    await chmod(join(dir, 'root.cap'), 0o644);
    const put = await ron(t, ['put', '-', '--dir', dir], { input: 'x' });
    assert.equal(put.code, 77);
    assert.match(put.stderr, /root\.cap is open to other users \(mode 0644\): run chmod 600 /);
    const doctor = await command(['doctor', '--dir', dir]);
    assert.equal(doctor.code, 1);
    assert.match(doctor.text, /^fail {2}the capability: .*chmod 600/m);
    await chmod(join(dir, 'root.cap'), 0o600);
    assert.equal((await ron(t, ['put', '-', '--dir', dir], { input: 'x' })).code, 0);
    const healthy = await command(['doctor', '--dir', dir]);
    assert.equal(healthy.code, 0, healthy.text);
    assert.match(healthy.text, new RegExp(`^ok {4}storage at ${node.services['storage']}, ready`, 'm'));
    assert.match(healthy.text, CAPABILITIES_OK);
    assert.match(healthy.text, /kms at [^]*passport at [^]*storage at /, 'callees come first');
    node.process.kill('SIGINT');
    await node.process.ended;
    await chmod(join(dir, 'kms/owner.cap'), 0o640);
    const warned = await command(['doctor', '--dir', dir]);
    assert.equal(warned.code, 1, warned.text);
    assert.match(
      warned.text,
      /^fail {2}capability of the owner of kms: .*owner\.cap is open to other users .*chmod 600/m,
    );
    const again = await ron(t, ['up', '--dir', dir, '--base-port', '0']);
    assert.equal(again.code, 77);
    assert.match(again.stderr, /owner\.cap is open to other users \(mode 0640\): run chmod 600 /);
  });

  test('doctor finds the cause when services cannot call each other', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = await up(t, dir);
    const capability = join(dir, 'storage/kms.cap');
    const kept = await readFile(capability, 'utf8');
    await rm(capability);
    await chmod(join(dir, 'passport/kms.cap'), 0o640);
    await rm(join(dir, 'run/kms.sock'));
    const ill = await command(['doctor', '--dir', dir]);
    assert.equal(ill.code, 1);
    assert.match(
      ill.text,
      /^fail {2}capability of storage for kms is missing \(.*storage\/kms\.cap\): `ron up` renews it/m,
    );
    assert.match(ill.text, /^fail {2}capability of passport for kms: .*chmod 600/m);
    assert.match(ill.text, /^fail {2}kms at http:.* does not answer: .*run\/kms\.sock is missing; restart `ron up`/m);
    assert.ok(!ill.text.includes(kept.trim()));
    await writeFile(capability, kept, { mode: 0o600 });
    await chmod(join(dir, 'passport/kms.cap'), 0o600);
    node.process.kill('SIGINT');
    await node.process.ended;
    const stopped = await command(['doctor', '--dir', dir]);
    assert.match(stopped.text, CAPABILITIES_OK);
  });

  test('doctor finds missing and damaged capabilities, and makes all other checks', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const node = await up(t, dir);
    const at = (file: string): string => join(dir, file);
    const doctor = async (): Promise<string> => {
      const { code, text, stderr } = await command(['doctor', '--dir', dir]);
      assert.deepEqual([code, stderr], [1, ''], text);
      assert.match(text, /^(?:ok|warn) +storage at .* ?ready/m, 'later checks are made');
      return text;
    };
    const files = ['root.cap', 'kms/owner.cap', 'storage/kms.cap'];
    const kept = await Promise.all(files.map((file) => readFile(at(file), 'utf8')));
    const restore = async (): Promise<void> => {
      for (const [index, file] of files.entries()) await writeFile(at(file), kept[index]!, { mode: 0o600 });
    };
    const what = ['the capability', 'capability of the owner of kms', 'capability of storage for kms'];

    for (const damaged of ['garbage', '']) {
      for (const file of files) await writeFile(at(file), damaged);
      const text = await doctor();
      for (const each of what) assert.match(text, new RegExp(`^fail {2}${each}: .*not a capability`, 'm'));
    }
    for (const file of files) await rm(at(file));
    const missing = await doctor();
    for (const each of what) assert.match(missing, new RegExp(`^fail {2}${each} is missing \\(`, 'm'));
    await restore();

    await writeFile(at('storage/kms.cap'), await readFile(at('passport/kms.cap')));
    const { storage, ...others } = JSON.parse(kept[0]!) as Record<string, string>;
    await writeFile(at('root.cap'), JSON.stringify({ ...others, kms: storage }));
    const mixed = await doctor();
    assert.match(mixed, /^fail {2}capability of storage for kms has the wrong audience, subject, scopes or caveats: /m);
    assert.match(mixed, /^fail {2}the capability for storage is missing: /m);
    assert.match(mixed, /^fail {2}the capability for kms has the wrong audience, subject, scopes or caveats: /m);
    await restore();

    const state = await readFile(at('node.json'));
    await rm(at('node.json'));
    const lost = await doctor();
    assert.match(lost, /^fail {2}.*node\.json is missing or damaged, but the node runs: /m);
    assert.doesNotMatch(lost, /is stopped|is free/);
    await writeFile(at('node.json'), state, { mode: 0o600 });
    node.process.kill('SIGINT');
    await node.process.ended;
    const stopped = await command(['doctor', '--dir', dir]);
    assert.equal(stopped.code, 0, stopped.text);
    assert.match(stopped.text, /is stopped/);
  });

  test('without kms, keys are in files, as log, /version and /readyz state; with kms, these keys are refused', async (t) => {
    const dir = join(await temporaryDir(t), 'node');
    const alone = await up(t, dir, ['--only', 'storage']);
    assert.match(await readFile(join(dir, 'keys'), 'utf8'), /^ron-keys v1 root\n/);
    assert.match(await readFile(join(dir, 'storage/keys'), 'utf8'), /^ron-keys v1 audience storage\n/);
    for (const file of ['keys', 'storage/keys']) assert.equal(await modeOf(join(dir, file)), 0o600, file);
    const saysFile = await Promise.all(
      ['version', 'readyz'].map(async (path) => (await fetch(`${alone.services['storage']}/${path}`)).text()),
    );
    for (const text of saysFile) assert.match(text, /"capability_keys":"file"/);
    assert.match(await readFile(join(dir, 'logs/storage.log'), 'utf8'), /keys from a file: there is no kms/);
    assert.equal((await ron(t, ['put', '-', '--dir', dir], { input: 'x' })).code, 0);
    const healthy = await command(['doctor', '--dir', dir]);
    assert.equal(healthy.code, 0, healthy.text);
    for (const file of ['keys', 'storage/keys']) {
      await chmod(join(dir, file), 0o644);
      const { code, text } = await command(['doctor', '--dir', dir]);
      assert.equal(code, 1, text);
      assert.match(text, new RegExp(`^fail {2}key file ${join(dir, file)}: `, 'm'));
      await chmod(join(dir, file), 0o600);
    }
    const old = JSON.parse(await readFile(join(dir, 'root.cap'), 'utf8')) as { storage: string };
    alone.process.kill('SIGINT');
    await alone.process.ended;

    const node = await up(t, dir);
    assert.match(await (await fetch(`${node.services['storage']}/version`)).text(), /"capability_keys":"kms"/);
    assert.equal((await ron(t, ['put', '-', '--dir', dir], { input: 'y' })).code, 0);
    await writeFile(join(dir, 'old.cap'), old.storage, { mode: 0o600 });
    const refused = await ron(t, ['put', '-', '--dir', dir, '--capability-file', join(dir, 'old.cap')], { input: 'z' });
    assert.equal(refused.code, 77, refused.stderr);
  });
});
