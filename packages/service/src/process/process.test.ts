import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { tempDirFor } from '@ron/testkit';

const FIXTURE = fileURLToPath(new URL('../../test/tiny-service.ts', import.meta.url));
const WAIT_MS = 20_000;

type LogLine = Record<string, unknown>;

/** A tiny service in its own process, and its output. */
class Child {
  readonly process: ChildProcess;
  readonly exited: Promise<number | null>;
  stdout = '';
  stderr = '';
  #onOutput: (() => void)[] = [];

  constructor(t: TestContext, args: readonly string[] = [], env: Record<string, string> = {}) {
    this.process = spawn(process.execPath, [FIXTURE, ...args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.process.stdout!.setEncoding('utf8').on('data', (text: string) => this.#said('stdout', text));
    this.process.stderr!.setEncoding('utf8').on('data', (text: string) => this.#said('stderr', text));
    this.exited = once(this.process, 'close').then(([code]) => {
      this.#said('stdout', '');
      return code as number | null;
    });
    t.after(async () => {
      this.process.kill('SIGKILL');
      await this.exited;
    });
  }

  get lines(): LogLine[] {
    return this.stderr
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LogLine);
  }

  kill(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }

  /** The URL of the ready line. */
  async url(): Promise<string> {
    await this.until(() => this.stdout.includes('\n'));
    const ready = JSON.parse(this.stdout) as LogLine;
    assert.equal(ready['event'], 'ready');
    assert.equal(ready['service'], 'tiny');
    return String(ready['url']);
  }

  logged(message: string): Promise<LogLine> {
    return this.until(() => this.lines.find((line) => String(line['msg']).includes(message)));
  }

  /** Looks again at each output; fails when the process ends or the time is up before it holds. */
  async until<T>(look: () => T | undefined | false): Promise<T> {
    const ends = performance.now() + WAIT_MS;
    for (;;) {
      const found = look();
      if (found !== undefined && found !== false) return found;
      assert.ok(performance.now() < ends, `timed out; it said:\n${this.stdout}\n${this.stderr}`);
      assert.ok(this.process.exitCode === null, `it exited; it said:\n${this.stdout}\n${this.stderr}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 100);
        this.#onOutput.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #said(where: 'stdout' | 'stderr', text: string): void {
    this[where] += text;
    for (const wake of this.#onOutput.splice(0)) wake();
  }
}

async function configFile(t: TestContext, text: string): Promise<string> {
  const dir = tempDirFor(t);
  const path = join(dir, 'tiny.toml');
  await writeFile(path, text);
  return path;
}

async function metric(url: string, series: string): Promise<number | undefined> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

suite('a service as a process', { concurrency: 3 }, () => {
  test('SIGTERM: accepted work is finished, new work is refused, exit code 0', async (t) => {
    const child = new Child(t);
    const url = await child.url();
    const accepted = fetch(`${url}/?ms=700`);
    await child.logged('work began');
    child.kill('SIGTERM');
    await child.logged('stop requested');
    assert.equal((await fetch(`${url}/?ms=0`)).status, 503, 'draining');
    assert.equal(await (await accepted).text(), 'done');
    assert.equal(await child.exited, 0);
    assert.equal(child.lines.at(-1)!['msg'], 'stopped');
  });

  test('under a supervisor further signals do not abort the drain; SIGQUIT does', async (t) => {
    const env = { RON_SUPERVISED: '1' };
    const child = new Child(t, ['--drain_deadline=5s'], env);
    const accepted = fetch(`${await child.url()}/?ms=700`);
    await child.logged('work began');
    for (const signal of ['SIGTERM', 'SIGTERM', 'SIGINT'] as const) child.kill(signal);
    assert.equal(await (await accepted).text(), 'done');
    assert.equal(await child.exited, 0);

    const aborted = new Child(t, ['--drain_deadline=5s'], env);
    const cut = fetch(`${await aborted.url()}/?ms=30000`).catch(() => undefined);
    await aborted.logged('work began');
    aborted.kill('SIGTERM');
    await aborted.logged('stop requested');
    aborted.kill('SIGQUIT');
    assert.equal(await aborted.exited, 143);
    await cut;
  });

  test('SIGTERM: work that outlives the drain deadline is aborted, answered and counted', async (t) => {
    const child = new Child(t, ['--drain_deadline=1s']);
    const url = await child.url();
    const accepted = fetch(`${url}/?ms=30000`);
    await child.logged('work began');
    const began_ms = performance.now();
    child.kill('SIGTERM');
    assert.equal((await accepted).status, 503);
    assert.equal(await child.exited, 0);
    const took_ms = performance.now() - began_ms;
    assert.ok(took_ms > 900 && took_ms < 5000, `${took_ms} ms`);
    assert.equal(child.lines.find((line) => line['msg'] === 'drained')!['aborted'], 1);
  });

  for (const [signal, code] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const]) {
    test(`${signal} twice aborts the drain and exits with ${code}`, async (t) => {
      const child = new Child(t, ['--drain_deadline=5s']);
      const url = await child.url();
      const accepted = fetch(`${url}/?ms=30000`).catch((error: unknown) => error);
      await child.logged('work began');
      child.kill(signal);
      await child.logged('stop requested: draining');
      const began_ms = performance.now();
      child.kill(signal);
      assert.equal(await child.exited, code);
      assert.ok(performance.now() - began_ms < 1500, 'without waiting for the drain');
      await accepted;
    });
  }

  test('SIGHUP: a good file is taken, a bad one refused with every reason, and both are counted', async (t) => {
    const path = await configFile(t, '[server]\nmax_inflight = 1');
    const child = new Child(t, ['--config', path]);
    const url = await child.url();
    await writeFile(path, '[server]\nmax_inflight = 2\n[log]\nlevel = "debug"');
    child.kill('SIGHUP');
    const good = await child.logged('configuration reloaded');
    assert.deepEqual(good['changed'], ['log.level', 'server.max_inflight']);
    await fetch(url);
    assert.equal((await child.logged('asked'))['level'], 'debug', 'the new level is in force');

    await writeFile(path, '[server]\nmax_inflght = 3\nmax_inflight = 0');
    child.kill('SIGHUP');
    const bad = await child.logged('configuration refused');
    const problems = String(bad['problems']);
    assert.match(problems, /server\.max_inflght: .*did you mean server\.max_inflight\?/);
    assert.match(problems, /server\.max_inflight: expected an integer from 1 to 1024, found 0/);

    await writeFile(path, 'port = 1234\n[server]\nmax_inflight = 2\n[log]\nlevel = "debug"');
    child.kill('SIGHUP');
    await child.until(() => child.lines.some((line) => String(line['problems']).includes('without a restart')));

    assert.equal(await metric(url, 'config_reloads_total{result="ok"}'), 1);
    assert.equal(await metric(url, 'config_reloads_total{result="refused"}'), 2);
    assert.equal(await (await fetch(url)).text(), 'done', 'it serves on');
    child.kill('SIGTERM');
    assert.equal(await child.exited, 0);
  });

  test('a critical task that keeps crashing is restarted with a limit, then ends the process with 70', async (t) => {
    const child = new Child(t, ['--crash_after=10ms']);
    assert.equal(await child.exited, 70);
    const said = (message: string): number => child.lines.filter((line) => line['msg'] === message).length;
    assert.equal(said('task crashed'), 2, 'restarted twice, as declared');
    assert.equal(said('a critical task stays down: draining'), 1);
    assert.equal(said('stopped'), 1, 'the other tasks were drained');
  });

  test('a configuration with any mistake is refused with 78, all of it listed, and nothing is started', async (t) => {
    // The port is taken: had it tried to listen it would have failed with another code, as the control below does.
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    t.after(() => holder.close());
    const { port } = holder.address() as { port: number };
    const path = await configFile(t, 'colour = "red"\n[server]\nmax_inflight = "many"');
    const child = new Child(t, [`--port=${port}`, '--config', path, '--crash_after=25d'], {
      RON_TINY_SERVER_MAX_INFLGHT: '5',
    });
    assert.equal(await child.exited, 78);
    assert.equal(child.stdout, '');
    assert.match(child.stderr, /^tiny did not start: 4 configuration problems\n/);
    assert.match(child.stderr, /colour: expected a key of this service/);
    assert.match(
      child.stderr,
      /server\.max_inflight: expected an integer from 1 to 1024, found "many" \(file .*tiny\.toml\)/,
    );
    assert.match(child.stderr, /crash_after: expected a duration from 0ms to 24d, found "25d" \(flag --crash_after\)/);
    assert.match(child.stderr, /RON_TINY_SERVER_MAX_INFLGHT: .*did you mean RON_TINY_SERVER_MAX_INFLIGHT\?/);

    const control = new Child(t, [`--port=${port}`]);
    assert.equal(await control.exited, 69, 'the same port with a good configuration');
    assert.match(control.stderr, /EADDRINUSE/);
  });

  test('a config file that was meant but not named is refused, not left out', async (t) => {
    for (const args of [['--config'], ['--config='], ['--config-table', 'tiny']]) {
      const child = new Child(t, args);
      assert.equal(await child.exited, 78, args.join(' '));
      assert.match(child.stderr, /^tiny did not start: expected .*--config/);
    }
  });

  test('an unhandled error is logged and ends the process with 70', async (t) => {
    const child = new Child(t, ['--reject_later']);
    assert.equal(await child.exited, 70);
    const last = child.lines.at(-1)!;
    assert.equal(last['level'], 'fatal');
    assert.match(JSON.stringify(last['err']), /this rejection is not handled/);
  });

  test('SIGTERM during the start ends it with 0 and nothing is left running', async (t) => {
    const child = new Child(t, ['--start_delay=1h']);
    await child.logged('starting');
    child.kill('SIGTERM');
    assert.equal(await child.exited, 0);
    assert.equal(child.stdout, '');
  });

  test('a drain that never ends is cut, with 70', async (t) => {
    const child = new Child(t, ['--drain_forever']);
    await child.url();
    child.kill('SIGTERM');
    assert.equal(await child.exited, 70);
    assert.match(child.stderr, /the drain did not end in time/);
  });

  test('an old Node prints how to get the right one', async (t) => {
    const child = new Child(t, [], { TINY_NODE_VERSION: '24.9.0' });
    assert.equal(await child.exited, 1);
    assert.match(child.stderr, /needs Node 26, this is 24\.9\.0.*npm install.*node_modules\/\.bin\/node/s);
    assert.equal(child.stdout, '');
  });

  test('--help lists the keys, and the config file may come from the environment', async (t) => {
    const help = new Child(t, ['--help']);
    assert.equal(await help.exited, 0);
    assert.match(help.stdout, /\| `server\.max_inflight` \| `512` \|/);
    const path = await configFile(t, '[tiny]\nport = "x"\n[kms]\nanything = 1');
    const child = new Child(t, [], { RON_TINY_CONFIG: path, RON_TINY_CONFIG_TABLE: 'tiny' });
    assert.equal(await child.exited, 78);
    assert.match(child.stderr, /1 configuration problem\n {2}port: expected an integer/);
    const flag = new Child(t, ['--config', path, '--config-table=kms'], { RON_TINY_CONFIG: '/nowhere' });
    assert.equal(await flag.exited, 78);
    assert.match(flag.stderr, /1 configuration problem\n {2}anything: expected a key/, 'the flag wins');
  });
});

test('secrets leave the environment, SIGUSR1 opens no debugger, and other processes of the user cannot read the memory', async (t) => {
  const child = new Child(t, [], { RON_KEK: '00'.repeat(32) });
  await child.url();
  const { given, kept } = await child.logged('environment');
  assert.deepEqual([given, kept], [true, false]);
  child.kill('SIGUSR1');
  await child.logged('SIGUSR1 ignored');
  assert.ok(!child.stderr.includes('Debugger listening'));
  if (process.platform !== 'linux') return;
  const limits = await readFile(`/proc/${child.process.pid}/limits`, 'utf8');
  assert.match(limits, /^Max core file size +0 +0 /m);
});
