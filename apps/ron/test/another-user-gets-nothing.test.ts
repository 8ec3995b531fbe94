/** Another user of the machine cannot take the place of a service, and receives no byte of a capability. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, lstat, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { eventually, type After } from '@ron/testkit';
import { CleanUps, command, ron, temporaryDir, up, type Up } from './support.ts';

const ATTACKER = fileURLToPath(new URL('./fixtures/attacker.ts', import.meta.url));
const NOBODY = 65_534;
const SERVICES = ['kms', 'passport', 'storage'] as const;
const skip = process.geteuid?.() !== 0 && 'only root can start a process of another user';

interface Seen {
  readonly bound: readonly number[];
  readonly received: string;
}

/** Binds ports as another user whenever they are free. */
class Squatter {
  readonly #child: ChildProcess;
  #log = '';
  #out = '';

  private constructor(ports: readonly number[]) {
    this.#child = asNobody(['squat', ...ports.map(String)]);
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.#log += text));
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.#out += text));
  }

  static async start(t: After, ports: readonly number[]): Promise<Squatter> {
    const squatter = new Squatter(ports);
    t.after(() => void squatter.#child.kill('SIGKILL'));
    await eventually('the squatter runs', () => squatter.#log.includes('started'));
    return squatter;
  }

  hasBound(port: number): boolean {
    return this.#log.includes(`bound ${port}\n`);
  }

  async stop(): Promise<Seen> {
    const closed = once(this.#child, 'close');
    this.#child.stdin!.end();
    await closed;
    return JSON.parse(this.#out) as Seen;
  }
}

function asNobody(args: readonly string[]): ChildProcess {
  return spawn(process.execPath, [ATTACKER, ...args], {
    uid: NOBODY,
    gid: NOBODY,
    cwd: '/',
    env: {},
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

async function intrusion(paths: readonly string[]): Promise<Record<string, string[]>> {
  const child = asNobody(['intrude', ...paths]);
  let out = '';
  child.stdout!.setEncoding('utf8').on('data', (text: string) => (out += text));
  await once(child, 'close');
  return JSON.parse(out) as Record<string, string[]>;
}

const portOf = (url: string): number => Number(new URL(url).port);

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function restarted(node: Up, name: string): Promise<void> {
  const killed = (await stateOf(node)).pids[name]!;
  process.kill(killed, 'SIGKILL');
  await eventually(`${name} is restarted`, async () => {
    const { pids } = await stateOf(node);
    return pids[name] !== undefined && pids[name] !== killed;
  });
}

async function stateOf({ dir }: Up): Promise<{ pids: Record<string, number> }> {
  return JSON.parse(await readFile(join(dir, 'node.json'), 'utf8')) as { pids: Record<string, number> };
}

suite('another user gets nothing', { skip }, () => {
  const cleanUps = new CleanUps();
  let temp: string;
  let node: Up;

  before(async () => {
    temp = await temporaryDir(cleanUps);
    await chmod(temp, 0o755);
    // The longest path that leaves room for the paths of the sockets.
    node = await up(cleanUps, join(temp, 'd'.repeat(107 - '/run/passport.sock'.length - temp.length - 1)));
  });
  after(() => cleanUps.run());

  test('the port of a killed service cannot be bound, its clients wait, and no token is received', async (t) => {
    const { dir } = node;
    const file = join(temp, 'file');
    const squatter = await Squatter.start(t, Object.values(node.services).map(portOf));
    for (const name of SERVICES) {
      const restart = restarted(node, name);
      // A connection during the restart waits in the backlog. One that the killed process had accepted breaks.
      const isUp = async (): Promise<boolean> =>
        await fetch(`${node.services[name]}/healthz`).then(
          ({ ok }) => ok,
          (error: Error) => {
            assert.notEqual((error.cause as NodeJS.ErrnoException).code, 'ECONNREFUSED');
            return false;
          },
        );
      const probes = eventually(`${name} answers`, isUp);
      await writeFile(file, name);
      const put = command(['put', file, '--dir', dir]);
      await Promise.all([restart, probes]);
      assert.equal((await put).code, 0, (await put).stderr);
    }
    assert.equal((await command(['keys', 'create', '--dir', dir])).code, 0);
    assert.equal((await command(['cap', 'issue', '--scopes', 'storage:get', '--dir', dir])).code, 0);
    assert.deepEqual(await squatter.stop(), { bound: [], received: '' });
  });

  test('a squatter that wins a port receives nothing: no service and no command calls it', async (t) => {
    const dir = await temporaryDir(t);
    const config = join(dir, 'ron.toml');
    // A port that `ron up` does not keep, because the file of the operator names it.
    const port = await freePort();
    await writeFile(config, `[kms]\nserver.bind = "127.0.0.1:${port}"\n`);
    const other = await up(t, join(dir, 'node'), ['--config', config]);
    const squatter = await Squatter.start(t, [port]);
    process.kill(other.pids['kms']!, 'SIGKILL');
    await eventually('the squatter has the port', () => squatter.hasBound(port));
    const refused = command(['keys', 'list', '--dir', other.dir]);
    const log = join(other.dir, 'logs/kms.log');
    await eventually('kms fails to restart', async () => (await readFile(log, 'utf8')).includes('EADDRINUSE'));
    assert.deepEqual(await squatter.stop(), { bound: [port], received: '' });
    await refused;
    await eventually(
      'the node goes on',
      async () => (await command(['keys', 'list', '--dir', other.dir])).code === 0,
      30_000,
    );
  });

  test('a port that is taken before the start is one sentence, and the squatter receives nothing', async (t) => {
    const port = await freePort();
    const squatter = await Squatter.start(t, [port]);
    await eventually('the squatter has the port', () => squatter.hasBound(port));
    const dir = join(await temporaryDir(t), 'node');
    const ended = await ron(t, ['up', '--dir', dir, '--base-port', String(port - 5)]);
    assert.equal(ended.code, 69);
    assert.match(ended.stderr, /^ron: cannot listen at 127\.0\.0\.1:\d+ \(EADDRINUSE\): [^\n]*\n$/);
    const { received } = await squatter.stop();
    assert.equal(received, '');
  });

  test('sockets, capabilities and the state are closed to others, even if the directory is opened', async () => {
    const { dir } = node;
    const files = ['root.cap', 'node.json', 'kms/owner.cap', 'passport/kms.cap', 'storage/kms.cap'];
    const sockets = SERVICES.map((name) => join('run', `${name}.sock`));
    const paths = ['run', ...sockets, ...files].map((file) => join(dir, file));
    const assertClosed = async (): Promise<void> => {
      for (const [path, codes] of Object.entries(await intrusion(paths)))
        assert.ok(
          codes.every((code) => ['EACCES', 'EISDIR', 'ENOTDIR', 'ECONNREFUSED'].includes(code)),
          `${path}: ${codes.join()}`,
        );
      for (const codes of Object.values(await intrusion(sockets.map((file) => join(dir, file)))))
        assert.equal(codes.at(-1), 'EACCES', 'connect');
    };
    await assertClosed();
    await chmod(dir, 0o755);
    for (const name of SERVICES) await chmod(join(dir, name), 0o755);
    await assertClosed();
    await chmod(join(dir, 'run'), 0o755);
    for (const codes of Object.values(await intrusion(sockets.map((file) => join(dir, file)))))
      assert.equal(codes.at(-1), 'EACCES', 'the sockets themselves are closed too');
    for (const name of ['.', 'run', ...SERVICES]) await chmod(join(dir, name), 0o700);
  });

  test('a socket directory of another user, an open one and a link are refused', async (t) => {
    const work = await temporaryDir(t);
    const refusedAt = async (name: string, prepare: (dir: string, run: string) => Promise<void>): Promise<void> => {
      const dir = join(work, name);
      await mkdir(dir, { mode: 0o700 });
      await prepare(dir, join(dir, 'run'));
      const ended = await ron(t, ['up', '--dir', dir, '--base-port', '0']);
      assert.equal(ended.code, 77, `${name}: ${ended.stderr}`);
      assert.match(ended.stderr, /must be a directory of this user.*Remove it, or choose another directory with --dir/);
    };
    await refusedAt('foreign', async (_, run) => {
      await mkdir(run, { mode: 0o700 });
      await chown(run, NOBODY, NOBODY);
    });
    await refusedAt('open', async (_, run) => {
      await mkdir(run);
      await chmod(run, 0o770);
    });
    await refusedAt('link', async (_, run) => {
      await mkdir(join(work, 'elsewhere'), { mode: 0o700 });
      await symlink(join(work, 'elsewhere'), run);
    });
    await refusedAt('node', async (dir) => await chown(dir, NOBODY, NOBODY));
  });

  test('stale sockets of a killed node are replaced; another file in their place is refused', async (t) => {
    const { dir } = node;
    const { pids } = await stateOf(node);
    for (const pid of [node.process.child.pid!, ...Object.values(pids)]) process.kill(pid, 'SIGKILL');
    await node.process.ended;
    assert.ok((await lstat(join(dir, 'run/kms.sock'))).isSocket());
    const second = await up(t, dir);
    assert.equal((await command(['put', join(temp, 'file'), '--dir', dir])).code, 0);
    second.process.kill('SIGINT');
    await second.process.ended;
    await rm(join(dir, 'run/storage.sock'), { force: true });
    await writeFile(join(dir, 'run/storage.sock'), 'a file');
    const ended = await ron(t, ['up', '--dir', dir, '--base-port', '0']);
    assert.equal(ended.code, 69);
    assert.match(ended.stderr, /run\/storage\.sock exists and is not a socket/);
  });

  test('a directory whose sockets would have too long paths is refused before anything is created', async (t) => {
    const dir = join(temp, 'd'.repeat(100 - temp.length));
    const ended = await ron(t, ['up', '--dir', dir, '--base-port', '0']);
    assert.equal(ended.code, 64);
    assert.match(ended.stderr, /bytes too long for the sockets in it; choose a shorter one with --dir/);
    await assert.rejects(lstat(dir), { code: 'ENOENT' });
  });
});
