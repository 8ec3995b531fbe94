/** Ten thousand idle connections: as many as allowed are held, the others are refused with the reason. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { eventually, MIB } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { Target, raw, withstands } from './target.ts';

const CLIENT = fileURLToPath(new URL('./idle-client.ts', import.meta.url));
const MAX_CONNS = 1024;
const PER_IP = 256;
/** The longest ones: on a busy machine it takes minutes to open all connections. */
const LONG_TIMEOUTS = ['--server.header_timeout=5m', '--idle_timeout=1h'];
/** Connections above the limit of their address that may still present a capability. */
const PROBATION_MAX = 64;

interface State {
  readonly opened: number;
  readonly failed: number;
  readonly held: number;
  readonly refusals: Readonly<Record<string, number>>;
}

interface Crowd {
  /** The last report of the process. */
  state: State;
  leave(): Promise<void>;
}

async function crowd(port: number, count: number, first: number, addresses: number): Promise<Crowd> {
  const args = [CLIENT, ...[port, count, first, addresses].map(String)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  after(() => void child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout });
  const [first_line] = (await once(lines, 'line')) as [string];
  const one: Crowd = {
    state: JSON.parse(first_line) as State,
    leave: async () => {
      child.stdin.end();
      if (child.exitCode === null) await once(child, 'exit');
    },
  };
  lines.on('line', (line) => (one.state = JSON.parse(line) as State));
  return one;
}

/** Node raises its soft limit to the hard one. With fewer, the kernel refuses connections before the service does. */
const descriptors_max = Number(
  execFileSync('sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }).replace('unlimited', '1e9'),
);
const too_few = descriptors_max < 4096 ? `needs 4096 descriptors a process, the limit is ${descriptors_max}` : false;

test('ten thousand idle connections', { skip: too_few }, async () => {
  await using target = await Target.start('--metrics_addr=127.0.0.1:0', ...LONG_TIMEOUTS);
  const health = healthUrl(target);
  const regular = await target.open();
  const ask = async (): Promise<void> => {
    const from_ms = performance.now();
    regular.received = '';
    regular.write(raw('GET /greeting HTTP/1.1'));
    assert.ok(await regular.until(() => regular.received.includes('hello')), regular.received);
    assert.ok(performance.now() - from_ms < 4000, `answered after ${performance.now() - from_ms} ms`);
  };
  await ask();
  await withstands(
    target,
    async () => {
      const idle = await target.settled();
      // Four processes with 2500 connections each, from 40 addresses: the limit of an address is not reached.
      const crowds = await Promise.all([0, 1, 2, 3].map((i) => crowd(target.port, 2500, i * 10, 10)));
      const sum = (pick: (state: State) => number): number => crowds.reduce((total, one) => total + pick(one.state), 0);
      assert.equal(
        sum((state) => state.opened + state.failed),
        10_000,
      );
      const held = (): number => sum((state) => state.held);
      const all_held = (): boolean => held() === MAX_CONNS - 1;
      await eventually('as many are held as allowed, less the regular client', all_held, 120_000);
      const refused = sum((state) => state.refusals['429 conns_max'] ?? 0);
      assert.ok(refused > 500, `only ${refused} received the reason`);
      for (const { state } of crowds) assert.deepEqual(Object.keys(state.refusals), ['429 conns_max']);
      // The service closes a refused connection after its client.
      await eventually('no refused connection is open', () => target.descriptors <= idle + MAX_CONNS + 1, 60_000);
      // Admitted clients are served, health has its own port, and a new client gets the reason.
      await ask();
      assert.equal((await send(health, 'GET', '/healthz')).status, 200);
      assert.equal((await send(target.url, 'GET', '/greeting')).problem?.code, 'conns_max');
      await Promise.all(crowds.map((one) => one.leave()));
      await eventually('all gone', () => target.descriptors <= idle + 2);
    },
    { counters: ['rejected_total{reason="conns_max"}'], growth_bytes_max: 96 * MIB },
  );
  await ask();
});

/** The port of the second listener is not announced: it is the other one on which the process listens. */
function healthUrl(target: Target): string {
  const proc = `/proc/${target.pid}`;
  const links = readdirSync(`${proc}/fd`).map((fd) => readlinkSync(`${proc}/fd/${fd}`));
  for (const line of readFileSync(`${proc}/net/tcp`, 'utf8').split('\n')) {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    if (state !== '0A' || !links.includes(`socket:[${inode}]`)) continue;
    const port = Number.parseInt(local.split(':')[1]!, 16);
    if (port !== target.port) return `http://127.0.0.1:${port}`;
  }
  throw new Error('no second listener');
}

/** The report of the crowd once it agrees with the descriptors of the service. */
async function settledState(one: Crowd, target: Target, idle: number): Promise<State> {
  await eventually('both sides agree', async () => (await target.settled()) - idle === one.state.held);
  return one.state;
}

test('one address gets its share, a few on probation, and no more', { skip: too_few }, async () => {
  await using target = await Target.start(...LONG_TIMEOUTS);
  await withstands(
    target,
    async () => {
      const idle = await target.settled();
      const one = await crowd(target.port, 400, 0, 1);
      const { held } = await settledState(one, target, idle);
      assert.ok(held >= PER_IP && held <= PER_IP + PROBATION_MAX, `${held} are held`);
      assert.deepEqual(one.state.refusals, { '429 conn_limit': 400 - held });
      // Another address is not affected.
      assert.equal((await target.send('GET', '/greeting')).status, 200);
      await one.leave();
      await eventually('all gone', () => target.descriptors <= idle + 1);
      const again = await crowd(target.port, 100, 0, 1);
      assert.equal((await settledState(again, target, idle)).held, 100, 'the places were returned');
      await again.leave();
    },
    { counters: ['rejected_total{reason="conn_limit"}'], growth_bytes_max: 48 * MIB },
  );
});

test('idle connections are closed by the header timeout', { skip: too_few }, async () => {
  await using target = await Target.start('--server.header_timeout=500ms');
  await withstands(target, async () => {
    const idle = await target.settled();
    const wires = await Promise.all(Array.from({ length: 200 }, () => target.open()));
    await Promise.all(wires.map((wire) => wire.rest()));
    await eventually('all gone', () => target.descriptors <= idle + 1);
  });
});
