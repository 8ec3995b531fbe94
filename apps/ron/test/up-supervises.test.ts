/** How `ron up` starts, restarts and drains several services, with fake services. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { After } from '@ron/testkit';
import { Process, temporaryDir } from './support.ts';

const PROGRAM = fileURLToPath(new URL('./fixtures/ron-with-fakes.ts', import.meta.url));

async function start(t: After, fakes: string, ...flags: string[]): Promise<{ node: Process; dir: string }> {
  const dir = join(await temporaryDir(t), 'node');
  return { dir, node: new Process(t, ['--dir', dir, ...flags], { program: PROGRAM, env: { FAKES: fakes } }) };
}

const ready = (node: Process): Promise<boolean> => node.until('ready', () => node.stdout.includes('\nready '));

/** The time of a log message, in Unix ms. */
async function logged(dir: string, name: string, message: string): Promise<number> {
  const lines = (await readFile(join(dir, 'logs', `${name}.log`), 'utf8')).trim().split('\n');
  const line = lines
    .map((text) => JSON.parse(text) as { msg: string; time: string })
    .find(({ msg }) => msg === message);
  assert.ok(line !== undefined, `${name} never logged ${message}`);
  return Date.parse(line.time);
}

suite('ron up supervises', { concurrency: 2 }, () => {
  test('Ctrl-C drains in order: no service is stopped before its callers are gone', async (t) => {
    const fakes = 'kms,passport,storage,index,edge';
    const drains = fakes.split(',').flatMap((name) => ['--set', `${name}.drain=150ms`]);
    const { node, dir } = await start(t, fakes, ...drains);
    await ready(node);
    node.kill('SIGINT');
    const ended = await node.ended;
    assert.equal(ended.code, 0, ended.stderr);
    assert.equal(ended.stderr, 'draining edge\ndraining storage, index\ndraining passport\ndraining kms\n');
    const drained = (name: string): Promise<number> => logged(dir, name, 'stop requested: draining');
    const gone = (name: string): Promise<number> => logged(dir, name, 'stopped');
    for (const [before, later] of [
      ['edge', 'storage'],
      ['edge', 'index'],
      ['storage', 'passport'],
      ['index', 'passport'],
      ['passport', 'kms'],
    ] as const) {
      assert.ok((await gone(before)) <= (await drained(later)), `${before} is gone before ${later} drains`);
    }
    assert.ok((await drained('index')) < (await gone('storage')), 'services of one round drain together');
  });

  test('a second Ctrl-C does not wait for the drain', async (t) => {
    const { node } = await start(t, 'storage,kms', '--set', 'storage.drain=1h');
    await ready(node);
    node.kill('SIGINT');
    await node.until('the drain', () => node.stderr.includes('draining storage'));
    // Signals within 300 ms count as the same key press; later ones do not.
    const again = setInterval(() => node.kill('SIGINT'), 50);
    const began_ms = performance.now();
    const ended = await node.ended;
    clearInterval(again);
    assert.equal(ended.code, 130);
    assert.match(ended.stderr, /second signal: aborting/);
    assert.ok(performance.now() - began_ms < 10_000, 'without waiting for the drain');
  });

  test('a crashing service alone is restarted with increasing delays; if it keeps crashing, the node stops', async (t) => {
    const { node, dir } = await start(t, 'storage,kms', '--set', 'kms.crash_after=20ms');
    const ended = await node.ended;
    assert.equal(ended.code, 70);
    const waits = [...ended.stderr.matchAll(/^kms exited with code 99; restarting in ([0-9.]+) s$/gm)];
    assert.equal(waits.length, 5);
    assert.ok(Number(waits[4]![1]) > Number(waits[0]![1]), 'the delays grow');
    assert.match(ended.stderr, /\nron: kms keeps crashing; stopped the node\n {2}/);
    assert.match(ended.stderr, / {2}fatal: about to crash\n/);
    assert.ok(!ended.stderr.includes('storage exited') && !ended.stderr.includes('storage was killed'));
    assert.match(ended.stderr, /\ndraining storage\n/);
    await logged(dir, 'storage', 'stopped');
  });

  test('a service that fails its first start fails the start, and the others are drained', async (t) => {
    const { node, dir } = await start(t, 'storage,kms', '--set', 'kms.crash_start=true');
    const ended = await node.ended;
    assert.equal(ended.code, 69);
    assert.match(ended.stderr, /ron: kms failed to start: it exited with code 69\n/);
    assert.match(ended.stderr, / {2}fatal: failed to start: crash_start is set\n/);
    assert.match(ended.stderr, new RegExp(`full log: ${join(dir, 'logs/kms.log')}`));
    assert.ok(!ended.stderr.includes('restarting'));
    assert.ok(!ended.stdout.includes('ready  '));
  });

  test('a service that the others run without may fail its start: the node is ready, and it is restarted', async (t) => {
    const { node } = await start(t, 'storage,index', '--set', 'index.crash_start=true');
    await ready(node);
    node.kill('SIGINT');
    const { code, stderr } = await node.ended;
    assert.equal(code, 0, stderr);
    assert.match(
      stderr,
      /^index failed to start: it exited with code 69: fatal: failed to start: crash_start is set\n/,
    );
    assert.match(
      stderr,
      /\n {5}index is restarted until it succeeds; meanwhile the others run without it \(log: .*index\.log\)\n/,
    );
  });

  test('--only starts the named services, in the order of the table; --json prints one line', async (t) => {
    const { node } = await start(t, 'storage,kms,edge', '--only', 'edge,storage', '--json');
    const line = await node.until('ready', () => node.stdout.includes('\n') && node.stdout);
    const { services, pids } = JSON.parse(line) as { services: object; pids: object };
    assert.deepEqual(Object.keys(services), ['storage', 'edge']);
    assert.deepEqual(Object.keys(pids), ['storage', 'edge']);
    node.kill('SIGTERM');
    const ended = await node.ended;
    assert.equal(ended.code, 0);
    assert.equal(ended.text.split('\n').length, 2);
    assert.equal(ended.stderr, '');
  });
});
