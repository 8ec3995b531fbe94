/** Runs the commands of the README and compares their output with the README. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultPort } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { homeAt, isAlive, readState } from '../src/home.ts';
import { CleanUps, Process, temporaryDir } from './support.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
/** Between commands that are repeated: each is a process. */
const POLL_MS = 500;
const BIN = join(ROOT, 'apps/ron/bin/ron.js');

interface Shown {
  readonly command: string;
  readonly output: string;
}

/** The commands of the `console` blocks, in order, each with the output below it. */
function shownIn(markdown: string): Shown[] {
  const blocks = [...markdown.matchAll(/^```console\n(.*?)^```$/gms)].map(([, block]) => block!);
  return blocks.flatMap((block) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((entry) => {
        const [command = '', ...output] = entry.split('\n');
        return { command, output: output.join('\n') };
      }),
  );
}

/** Replaces values that differ between runs. */
const normal = (text: string): string =>
  text
    .replaceAll('\r', '')
    .replace(/127\.0\.0\.1:\d+/g, '127.0.0.1:PORT')
    .replace(/pid \d+/g, 'pid N')
    .replace(/\d+(?:\.\d)? s\b/g, 'N s')
    .replace(/\(corr_id [^)]+\)/g, '(corr_id ...)')
    .replace(/^ok {4}Node 26\..*$/m, 'ok    Node 26')
    .replace(/^ok {4}\/.*\.ron$/m, 'ok    DIRECTORY')
    .replace(/[\d.]+ [KMGT]iB free/g, 'N free')
    .replace(/\d+ open files/, 'N open files')
    .replace(/\/tcp\/\d+/g, '/tcp/PORT')
    .replace(/12D3KooW\w+/g, 'PEER')
    // Both depend on how long the commands before have taken.
    .replace(/valid for \d+ minutes/, 'valid for N minutes')
    .replace(/\d+ % busy/, 'N % busy')
    .replace(/audit log: [\d.]+ (?:B|[KMG]iB)/, 'audit log: N')
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replace(/\b01[0-9A-HJKMNP-TV-Z]{24}\b/g, 'ULID')
    .replace(/^token {4}[\w-]+$/m, 'token TOKEN')
    .replace(/\b(key|record) [0-9a-f]{64}/g, '$1 HEX')
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'UUID')
    // The number depends on whether the last entry is signed already.
    .replace(/^entries +\d+, .*$/m, 'entries N');

/** Services become ready in any order. */
const inOrder = (text: string): string => {
  const lines = text.split('\n');
  const ready = lines.findIndex((line) => line.startsWith('ready'));
  return [...lines.slice(0, ready).toSorted(), ...lines.slice(ready)].join('\n');
};

const markdown = await readFile(join(ROOT, 'README.md'), 'utf8');
const shown = shownIn(markdown);

suite('README', () => {
  const cleanUps = new CleanUps();
  let dir: string;
  let node: Process;
  /** Ports by the port that the README shows. */
  const ports = new Map<string, string>();

  before(async () => {
    dir = await temporaryDir(cleanUps);
    await symlink(join(ROOT, 'docs'), join(dir, 'docs'));
    // Like `npm start`, but on free ports.
    const program = join(ROOT, 'tools/run.js');
    node = new Process(cleanUps, [join(ROOT, 'apps/ron/src/main.ts'), 'up', '--base-port', '0'], { program, cwd: dir });
    await node.until('ready', () => node.stdout.includes('Ctrl-C'));
    const state = (await readState(homeAt(join(dir, '.ron'))))!;
    for (const name of ['storage', 'edge', 'interop'] as const)
      ports.set(String(defaultPort(name)), new URL(state.services[name]!).port);
  });
  after(() => cleanUps.run());

  /** Runs a command in a shell, with `npx ron` replaced by this project's. */
  async function run(command: string): Promise<string> {
    // One pipe, so that notes and results keep their order.
    const onFreePorts = command
      .replaceAll(/\b71\d\d\b/g, (shownPort) => ports.get(shownPort) ?? shownPort)
      .replace('--base-port 7200', '--base-port 0');
    const script = `exec 2>&1\nnpx() { shift; node ${BIN} "$@"; }\n${onFreePorts}`;
    const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env['PATH']}` };
    const child = spawn('bash', ['-c', script], { cwd: dir, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => (output += text));
    }
    // A command in the background keeps its output open.
    await once(child, command.endsWith('&') ? 'exit' : 'close');
    return output;
  }

  /** Waits until the node in the background knows the first one, as a user would before the next command. */
  async function joined(command: string): Promise<void> {
    const [, name = ''] = /--dir (\S+)/.exec(command)!;
    cleanUps.after(async () => {
      const pid = (await readState(homeAt(join(dir, name))))?.pid;
      if (pid === undefined) return;
      process.kill(pid, 'SIGTERM');
      await eventually('the second node has stopped', () => !isAlive(pid));
    });
    await eventually('the second node has joined', async () => {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      return (await run(`npx ron net status --dir ${name}`)).includes('1 peer known');
    });
  }

  test('the README has commands', () => {
    assert.ok(shown.length >= 8, `${shown.length} commands found`);
    assert.equal(shown[0]!.command, 'npm start');
  });

  test('the output of npm start matches the README', async () => {
    assert.equal(inOrder(normal(node.stdout)), inOrder(normal(shown[0]!.output)));
    const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
      scripts: { start: string };
    };
    assert.equal(scripts.start, 'node tools/run.js apps/ron/src/main.ts up');
  });

  for (const { command, output } of shown.slice(1)) {
    const isMissing = command.startsWith('curl') && spawnSync('curl', ['--version']).error !== undefined;
    const skip = isMissing ? 'curl is not installed: apt install curl' : false;
    test(`$ ${command}`, { skip }, async () => {
      // A range may end without a line break.
      assert.equal(normal(await run(command)).trimEnd(), normal(output).trimEnd());
      if (command.endsWith('&')) await joined(command);
    });
  }

  test('every linked page exists', async () => {
    for (const [, link] of markdown.matchAll(/\]\(([^)#]+)\)/g)) await readFile(join(ROOT, link!));
  });
});
