/** Mistakes on the command line are found, explained and answered with the right code. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { unusedUrl } from '@ron/testkit';
import { COMMANDS, loadCommand } from '../src/commands.ts';
import { BIN, Process, ron, temporaryDir } from './support.ts';

const ZEROS = `b3:${'0'.repeat(64)}`;

suite('usage', { concurrency: 3 }, () => {
  const mistakes: [string[], RegExp][] = [
    [['putt', 'x'], /^ron: unknown command "putt": did you mean `ron put`\?\n/],
    [['frobnicate'], /^ron: unknown command "frobnicate"\n/],
    [['get', ZEROS, '--outptu', 'x'], /^ron: unknown flag --outptu: did you mean --output\?\n/],
    [['get', ZEROS, '-x'], /^ron: unknown flag -x\n/],
    [['get'], /^ron: an argument is missing: ron get ADDRESS/],
    [['stat', ZEROS, 'more'], /^ron: "more" is one argument too many: ron stat ADDRESS/],
    [['get', ZEROS, '-o', '--json'], /(-o|--output) needs a value/],
    [['get', ZEROS, '--json=yes'], /--json takes no value/],
    [['get', ZEROS, '--dir', 'a', '--dir', 'b'], /--dir was given twice/],
    [['get', ZEROS, '--range', 'x'], /--range is A-B or A-, like 0-99 or 100-, not "x"/],
    [['get', ZEROS, '--url', 'nonsense'], /"nonsense" is not a URL/],
    [['up', '--only', 'storge'], /--only: there is no service "storge": did you mean storage\?/],
    [['up', '--only', 'index'], /--only: index is not built yet/],
    [['up', '--set', 'storage'], /--set is SERVICE\.KEY=VALUE, not "storage"/],
    [['up', '--base-port', '99999'], /--base-port is a number from 0 to 65500/],
    [['cap', 'attenuate'], /which caveats\?/],
    [['config', 'prnt'], /it is `config print` or `config check`/],
    [['completion', 'tcsh'], /it is one of bash, zsh, fish/],
  ];
  for (const [args, message] of mistakes) {
    test(`ron ${args.join(' ').replace(ZEROS, 'b3:0..')} is refused with 64 and a hint`, async (t) => {
      const dir = await temporaryDir(t);
      const ended = await ron(t, args, { cwd: dir });
      assert.equal(ended.code, 64, ended.stderr);
      // With --json among the words the same sentence comes as JSON.
      const said = ended.stderr.startsWith('{')
        ? `ron: ${(JSON.parse(ended.stderr) as { error: { message: string } }).error.message}\n`
        : ended.stderr;
      assert.match(said, message);
      assert.equal(ended.text, '');
      assert.deepEqual(await readdir(dir), [], 'nothing was made');
    });
  }

  test('no command: the help, on standard error, and 64; asked for: on standard output, and 0', async (t) => {
    const none = await ron(t, []);
    assert.equal(none.code, 64);
    assert.match(none.stderr, /^ron: a private content network\n\nusage: ron COMMAND/);
    for (const args of [['--help'], ['help'], ['-h']]) {
      const asked = await ron(t, args);
      assert.equal(asked.code, 0);
      assert.equal(asked.text, none.stderr);
    }
    assert.equal((await ron(t, ['--version'])).text, 'ron 0.1.0\n');
  });

  test('output that cannot be written is a failure: 74, and 141 when nobody reads it', async (t) => {
    const run = (redirected: string): { status: number | null; stderr: string } =>
      spawnSync('bash', ['-c', `"${process.execPath}" "${BIN}" config print ${redirected}`], { encoding: 'utf8' });
    const full = run('> /dev/full');
    assert.deepEqual([full.status, full.stderr], [74, 'ron: the output cannot be written (ENOSPC)\n']);
    const nobody = new Process(t, ['config', 'print'], { input: '' });
    nobody.child.stdout!.destroy();
    const ended = await nobody.ended;
    assert.deepEqual([ended.code, ended.stderr], [141, '']);
  });

  test('a directory that cannot be made is told, not tried for ever', async (t) => {
    const up = await ron(t, ['up', '--dir', '/proc/x']);
    assert.deepEqual([up.code, up.stderr], [73, 'ron: /proc/x cannot be used (ENOENT)\n']);
    const doctor = await ron(t, ['doctor', '--dir', '/etc/passwd/x']);
    assert.equal(doctor.code, 1);
    assert.match(doctor.text, /^fail {2}\/etc\/passwd is not a directory: choose another with --dir$/m);
    const dir = await temporaryDir(t);
    assert.match((await ron(t, ['doctor', '--dir', join(dir, 'a/b/c')])).text, /does not exist yet: `ron up` makes it/);
  });

  test('--json may come first, and with help', async (t) => {
    for (const args of [
      ['--json', 'help'],
      ['help', '--json'],
      ['--help', '--json'],
    ]) {
      const asked = await ron(t, args);
      assert.deepEqual([asked.code, Object.keys(JSON.parse(asked.text) as object)], [0, ['commands']], asked.stderr);
    }
    assert.deepEqual(JSON.parse((await ron(t, ['--json', '--version'])).text), { version: '0.1.0' });
  });

  test('every command explains itself with examples', async (t) => {
    for (const name of Object.keys(COMMANDS)) {
      const command = await loadCommand(name);
      assert.equal(command.name, name);
      assert.ok(Object.keys(command.examples).length > 0, name);
    }
    const help = await ron(t, ['get', '--help']);
    assert.equal(help.code, 0);
    assert.match(help.text, /^usage: ron get ADDRESS \[-o FILE\]/);
    assert.match(help.text, /\n {2}-o, --output FILE +Write to this file/);
    assert.match(help.text, /\nexamples:\n {2}ron get b3:\.\.\. -o photo\.jpg/);
    assert.equal((await ron(t, ['help', 'get'])).text, help.text);
  });

  test('a service that does not run is named, with what to do', async (t) => {
    const dir = await temporaryDir(t);
    const url = await unusedUrl();
    const put = await ron(t, ['put', '-', '--url', url], { cwd: dir, input: 'x' });
    assert.equal(put.code, 69);
    assert.equal(put.stderr, `ron: storage is not running at ${url}: start it with \`npm start\`\n`);
    const json = await ron(t, ['put', '-', '--url', url, '--json'], { cwd: dir, input: 'x' });
    const { error } = JSON.parse(json.stderr) as { error: { code: string; exit: number } };
    assert.deepEqual([error.code, error.exit], ['unreachable', 69]);
  });

  test('a capability file that was named must be there, be one, and be secret', async (t) => {
    const dir = await temporaryDir(t);
    const put = (file: string): ReturnType<typeof ron> =>
      ron(t, ['put', '-'], { cwd: dir, input: 'x', env: { RON_CAPABILITY_FILE: file } });
    const missing = await put('no.cap');
    assert.equal(missing.code, 77);
    assert.match(missing.stderr, /there is no capability for storage at no\.cap/);
    await writeFile(join(dir, 'bad.cap'), '{"storage": 7, "secret": "abc"}', { mode: 0o600 });
    const bad = await put('bad.cap');
    assert.equal(bad.code, 77);
    assert.match(bad.stderr, /bad\.cap is no capability file/);
    assert.ok(!bad.stderr.includes('abc'), 'the file is not quoted');
    const none = await ron(t, ['cap', 'show'], { cwd: dir });
    assert.equal(none.code, 66);
    assert.match(none.stderr, /there is no capability at .*\.ron\/root\.cap: `ron up` makes one/);
  });

  test('a server cannot write to the terminal by what it says', async (t) => {
    const { createServer } = await import('node:http');
    const { once } = await import('node:events');
    const server = createServer((_request, response) => {
      response.writeHead(403, { 'Content-Type': 'application/problem+json' });
      response.end(JSON.stringify({ code: 'forbidden', detail: 'no\u001b[2J\u202egnp.exe' }));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => void server.close());
    const { port } = server.address() as { port: number };
    const pin = await ron(t, ['pin', ZEROS, '--url', `http://127.0.0.1:${port}`]);
    assert.equal(pin.code, 77);
    assert.equal(pin.stderr, 'ron: no\\u001b[2J\\u202egnp.exe\n');
  });

  test('completion is a script that the shell accepts and that knows the commands', async (t) => {
    const script = (await ron(t, ['completion', 'bash'])).text;
    const asked = `${script}\nCOMP_WORDS=(ron ge); COMP_CWORD=1; _ron; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(ron get --ra); COMP_CWORD=2; _ron; echo "\${COMPREPLY[@]}"`;
    const bash = spawnSync('bash', ['-c', asked], { encoding: 'utf8' });
    assert.equal(bash.stdout, 'get\n--range\n', bash.stderr);
    assert.match((await ron(t, ['completion', 'fish'])).text, /complete -c ron -n __fish_use_subcommand -f -a put/);
  });

  test('config check finds what is wrong without starting anything', async (t) => {
    const dir = await temporaryDir(t);
    await writeFile(join(dir, 'ron.toml'), '[storage]\nread_timeout = "soon"\nserver.max_inflght = 1\n');
    const check = await ron(t, ['config', 'check', '--config', 'ron.toml'], { cwd: dir });
    assert.equal(check.code, 78);
    assert.match(check.stderr, /\[storage\] read_timeout: expected a duration .*, found "soon" \(file ron\.toml\)/);
    assert.match(check.stderr, /\[storage\] server\.max_inflght: .*did you mean server\.max_inflight\?/);
    await writeFile(join(dir, 'good.toml'), (await ron(t, ['config', 'print'], { cwd: dir })).text);
    const good = await ron(t, ['config', 'check', '--config', 'good.toml'], { cwd: dir });
    assert.equal(good.code, 0, good.stderr);
    assert.equal(good.text, 'the configuration is right (storage, kms, passport)\n');
  });
});
