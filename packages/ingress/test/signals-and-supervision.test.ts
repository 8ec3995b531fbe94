/** The example service as a real process: signals, drain under load, crashing tasks, reload. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { eventually, tempDirFor } from '@ron/testkit';
import { send, ServiceProcess, StartError } from '@ron/testkit/service';
import { capability, KEY_HEX } from './support.ts';

const MAIN = new URL('./example/main.ts', import.meta.url).pathname;

const start = (flags: readonly string[] = []): Promise<ServiceProcess> =>
  ServiceProcess.start({ main: MAIN, flags: [`--notes.key_hex=${KEY_HEX}`, ...flags] });

const SLOW_DONE = 'http_requests_total{route="GET /slow/:ms",class="2xx"}';

/** Keeps `connections` busy with one request after the other until each is refused; returns the answers. */
async function load(url: string, path: string, connections: number): Promise<Map<string, number>> {
  const { hostname, port } = new URL(url);
  const outcomes = new Map<string, number>();
  const one = (agent: Agent): Promise<string> =>
    new Promise((resolve) => {
      const req = request({ hostname, port, path, agent }, (res) => {
        res.resume();
        res.on('end', () => resolve(String(res.statusCode)));
        res.on('error', (error: NodeJS.ErrnoException) => resolve(`cut ${error.code}`));
      });
      req.on('error', (error: NodeJS.ErrnoException) => resolve(`${error.code}`));
      req.end();
    });
  await Promise.all(
    Array.from({ length: connections }, async () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      for (let outcome = '200'; outcome === '200';) {
        outcome = await one(agent);
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      }
      agent.destroy();
    }),
  );
  return outcomes;
}

describe('SIGTERM under load', () => {
  test('finishes accepted requests, refuses the rest, resets none, and /readyz changes first', async () => {
    await using service = await start(['--drain_deadline=5s', '--notes.workers=8', '--notes.queue=256']);
    const long = send(service.url, 'GET', '/slow/3000');
    await eventually('it runs', async () => (await service.metric('http_requests_inflight')) === 1);
    const running = load(service.url, '/slow/40', 24);
    await eventually('work flows', async () => (await service.metric(SLOW_DONE)) > 50);
    service.child.kill('SIGTERM');
    await eventually('not ready', async () => (await send(service.url, 'GET', '/readyz')).status === 503);
    assert.equal((await send(service.url, 'GET', '/healthz')).status, 200, 'alive while it drains');
    const refused = await send(service.url, 'GET', '/greeting');
    assert.equal(refused.problem?.code, 'draining');
    assert.equal((await long).status, 200, 'accepted before the signal, answered after it');
    assert.equal(await service.exit(), 0);
    const outcomes = await running;
    assert.deepEqual([...outcomes.keys()].toSorted(), ['200', '503'], JSON.stringify([...outcomes]));
    assert.equal(outcomes.get('503'), 24, 'every client got an answer');
    assert.equal(service.logged('drained')?.['clean'], true);
    assert.equal(service.logged('drained')?.['requests_cut'], 0);
  });

  test('aborts stragglers at the drain deadline and counts them', async () => {
    await using service = await start(['--drain_deadline=1s']);
    const stragglers = [send(service.url, 'GET', '/slow/20000'), send(service.url, 'GET', '/slow/20000')];
    await eventually('both run', async () => (await service.metric('http_requests_inflight')) === 2);
    const start_ms = performance.now();
    service.child.kill('SIGTERM');
    for (const reply of await Promise.all(stragglers)) {
      assert.equal(reply.status, 503);
      assert.equal(reply.problem?.code, 'canceled');
    }
    assert.equal(await service.exit(), 0);
    const took_ms = performance.now() - start_ms;
    assert.ok(took_ms > 900 && took_ms < 3000, `took ${took_ms} ms`);
    const drained = service.logged('drained');
    assert.equal(drained?.['clean'], false);
    assert.equal(drained?.['tasks_aborted'], 2);
  });

  test('a second signal aborts at once', async () => {
    await using service = await start(['--drain_deadline=5s']);
    const straggler = send(service.url, 'GET', '/slow/20000').catch((error: NodeJS.ErrnoException) => error.code);
    await eventually('it runs', async () => (await service.metric('http_requests_inflight')) === 1);
    service.child.kill('SIGTERM');
    await eventually('draining', () => service.logged('stop requested: draining') !== undefined);
    const start_ms = performance.now();
    service.child.kill('SIGTERM');
    assert.equal(await service.exit(), 143);
    assert.ok(performance.now() - start_ms < 2000);
    await straggler;
  });
});

describe('supervision', () => {
  test('a crashing task restarts with growing pauses; if it flaps, the process ends with a dedicated exit code', async () => {
    await using service = await start();
    const pauses: number[] = [];
    for (let crash = 1; crash <= 6; crash += 1) {
      await eventually('it runs', async () => (await service.metric('tasks_spawned_total{kind="ticker"}')) === crash);
      assert.equal((await send(service.url, 'GET', '/healthz')).status, 200);
      const asked = await send(service.url, 'POST', '/admin/crash', { headers: capability() });
      assert.equal(asked.status, 204);
      if (crash === 6) break;
      await eventually(
        'it crashed',
        () => service.log.filter((entry) => entry['msg'] === 'task crashed').length === crash,
      );
      pauses.push(Number(service.log.findLast((entry) => entry['msg'] === 'task crashed')?.['restart_ms']));
    }
    assert.equal(await service.exit(), 70);
    assert.ok(service.logged('a critical task stays down: draining'));
    assert.equal(pauses.length, 5);
    assert.ok(pauses[0]! >= 50 && pauses[0]! <= 250, `first pause ${pauses[0]}`);
    assert.ok(pauses[4]! > pauses[0]! && pauses[4]! <= 5500, `pauses ${pauses.join(', ')}`);
  });
});

describe('SIGHUP', () => {
  test('applies a new configuration; an invalid one is refused, reported, and changes nothing', async (t) => {
    const file = join(tempDirFor(t), 'notes.toml');
    const greeting = async (service: ServiceProcess): Promise<string> =>
      JSON.parse((await send(service.url, 'GET', '/greeting')).text).greeting;
    await writeFile(file, '[notes]\ngreeting = "one"\n');
    await using service = await start([`--config=${file}`]);
    assert.equal(await greeting(service), 'one');

    await writeFile(file, '[notes]\ngreeting = "two"\n');
    service.child.kill('SIGHUP');
    await eventually('the new one is in force', async () => (await greeting(service)) === 'two');

    await writeFile(file, '[notes]\ngreeting = "three"\ngreetin = "typo"\nworkers = "many"\n');
    service.child.kill('SIGHUP');
    const refused = 'configuration refused; the previous one stays in force';
    await eventually('it is refused', () => service.logged(refused) !== undefined);
    assert.equal(await greeting(service), 'two');
    const problems = JSON.stringify(service.logged(refused)?.['problems']);
    assert.match(problems, /notes\.greetin.*notes\.greeting/, 'names the nearest key');
    assert.match(problems, /notes\.workers/);
    assert.equal(await service.metric('config_reloads_total{result="ok"}'), 1);
    assert.equal(await service.metric('config_reloads_total{result="refused"}'), 1);
  });
});

test('an invalid configuration is refused at the start, with all errors', async () => {
  const started = start(['--server.max_inflght=3', '--read_timeout=fast', '--max_conns=0']);
  const error = await started.then(
    () => assert.fail('it started'),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof StartError);
  assert.equal(error.status, 78);
  const text = error.log.map((entry) => entry['msg']).join('\n');
  assert.match(text, /3 configuration problems/);
  assert.match(text, /server\.max_inflght.*server\.max_inflight/);
  assert.match(text, /read_timeout.*a duration/);
  assert.match(text, /max_conns.*an integer from 1/);
});
