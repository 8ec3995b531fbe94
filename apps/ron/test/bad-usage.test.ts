/** Usage errors: messages and exit codes. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { unusedUrl } from '@ron/testkit';
import { COMMANDS, loadCommand } from '../src/commands.ts';
import { SERVICE_TABLE } from '../src/up/table/services.ts';
import { BIN, Process, ron, temporaryDir } from './support.ts';

const ZEROS = `b3:${'0'.repeat(64)}`;

suite('usage', { concurrency: 3 }, () => {
  const mistakes: [string[], RegExp][] = [
    [['putt', 'x'], /^ron: unknown command "putt": did you mean `ron put`\?\n/],
    [['frobnicate'], /^ron: unknown command "frobnicate"\n/],
    [['get', ZEROS, '--outptu', 'x'], /^ron: unknown flag --outptu: did you mean --output\?\n/],
    [['get', ZEROS, '-x'], /^ron: unknown flag -x\n/],
    [['get'], /^ron: missing argument; usage: ron get ADDRESS/],
    [['stat', ZEROS, 'more'], /^ron: unexpected argument "more"; usage: ron stat ADDRESS/],
    [['get', ZEROS, '-o', '--json'], /(-o|--output) needs a value/],
    [['get', ZEROS, '--json=yes'], /--json takes no value/],
    [['get', ZEROS, '--dir', 'a', '--dir', 'b'], /duplicate flag --dir/],
    [['get', ZEROS, '--range', 'x'], /--range must be A-B or A-, like 0-99 or 100-, not "x"/],
    [['get', ZEROS, '--url', 'nonsense'], /"nonsense" is not a valid URL/],
    [['up', '--only', 'storge'], /--only: unknown service "storge": did you mean storage\?/],
    [['up', '--set', 'storage'], /--set must be SERVICE\.KEY=VALUE, not "storage"/],
    [['up', '--base-port', '99999'], /--base-port must be a number from 0 to 65500/],
    [['cap', 'attenuate'], /Specify at least one caveat/],
    [['pack', 'ad', 'x'], /unknown verb ad: expected add, ls, rm, verify/],
    [['pack', 'add', ZEROS], /--name is required for an address/],
    [['pack', 'add', 'Big Map.pmtiles'], /"Big Map" cannot be the name of a pack.*--name/],
    [['pack', 'rm', 'planet'], /Confirm with --yes/],
    [['edge', 'purge'], /Specify a key, --prefix or --host/],
    [['edge', 'purge', 'o/x', '--host', 'a'], /Specify a key, --prefix or --host/],
    [['queue', 'snd', 'orders'], /unknown verb snd: expected send, receive, ack/],
    [['queue', 'send', 'Orders', '--text', 'x'], /"Orders" cannot be the name of a topic: use words of a-z, 0-9 and _/],
    [['queue', 'send', 'send', '--text', 'x'], /"send" cannot be the name of a topic/],
    [['queue', 'send', 'orders', 'a', '--text', 'x'], /Specify files or --text, not both/],
    [['queue', 'send', 'orders', '--text', 'x', '--delay', '25h'], /--delay must be a duration from 0ms to 1d/],
    [['queue', 'send', 'orders', '--text', 'x', '--header', 'plain'], /--header must be NAME:VALUE, not "plain"/],
    [['queue', 'receive', 'orders', '--max', '0'], /--max must be a number from 1 to 1000000000, not "0"/],
    [['queue', 'receive', 'orders', '--visibility', '1ms'], /--visibility must be a duration from 1s to 12h/],
    [['queue', 'receive', 'orders', '--raw', '--out', 'd'], /Specify one of --raw, --lines, --out and --json/],
    [['queue', 'ack', 'orders'], /expected `queue ack TOPIC TOKEN\.\.\.`/],
    [['queue', 'replay', 'orders'], /Specify sequence numbers, --max N or --all/],
    [['queue', 'delete', 'orders', '--all'], /Confirm with --yes/],
    [['queue', 'policy', 'orders', '--set', 'max_age=soon'], /--set max_age: "soon" is not a valid value/],
    [['queue', 'accept'], /--reason is required/],
    [['config', 'prnt'], /expected `config print` or `config check`/],
    [['completion', 'tcsh'], /expected one of bash, zsh, fish/],
  ];
  for (const [args, message] of mistakes) {
    test(`ron ${args.join(' ').replace(ZEROS, 'b3:0..')} fails with 64 and a hint`, async (t) => {
      const dir = await temporaryDir(t);
      const ended = await ron(t, args, { cwd: dir });
      assert.equal(ended.code, 64, ended.stderr);
      // With --json the same message is printed as JSON.
      const printed = ended.stderr.startsWith('{')
        ? `ron: ${(JSON.parse(ended.stderr) as { error: { message: string } }).error.message}\n`
        : ended.stderr;
      assert.match(printed, message);
      assert.equal(ended.text, '');
      assert.deepEqual(await readdir(dir), [], 'no file was created');
    });
  }

  test('without a command, help goes to standard error with 64; on request, to standard output with 0', async (t) => {
    const none = await ron(t, []);
    assert.equal(none.code, 64);
    assert.match(none.stderr, /^ron: a private content network\n\nusage: ron COMMAND/);
    for (const args of [['--help'], ['help'], ['-h']]) {
      const help = await ron(t, args);
      assert.equal(help.code, 0);
      assert.equal(help.text, none.stderr);
    }
    assert.equal((await ron(t, ['--version'])).text, 'ron 0.1.0\n');
  });

  test('a failed write of the output exits with 74, a closed pipe with 141', async (t) => {
    const run = (redirected: string): { status: number | null; stderr: string } =>
      spawnSync('bash', ['-c', `"${process.execPath}" "${BIN}" config print ${redirected}`], { encoding: 'utf8' });
    const full = run('> /dev/full');
    assert.deepEqual([full.status, full.stderr], [74, 'ron: the output cannot be written (ENOSPC)\n']);
    const unread = new Process(t, ['config', 'print'], { input: '' });
    unread.child.stdout!.destroy();
    const ended = await unread.ended;
    assert.deepEqual([ended.code, ended.stderr], [141, '']);
  });

  test('a directory that cannot be created is reported at once', async (t) => {
    const up = await ron(t, ['up', '--dir', '/proc/x']);
    assert.deepEqual([up.code, up.stderr], [73, 'ron: /proc/x cannot be used (ENOENT)\n']);
    const doctor = await ron(t, ['doctor', '--dir', '/etc/passwd/x']);
    assert.equal(doctor.code, 1);
    assert.match(doctor.text, /^fail {2}\/etc\/passwd is not a directory: choose another with --dir$/m);
    const dir = await temporaryDir(t);
    assert.match(
      (await ron(t, ['doctor', '--dir', join(dir, 'a/b/c')])).text,
      /does not exist yet: `ron up` creates it/,
    );
  });

  test('--json may come first, and works with help', async (t) => {
    for (const args of [
      ['--json', 'help'],
      ['help', '--json'],
      ['--help', '--json'],
    ]) {
      const help = await ron(t, args);
      assert.deepEqual([help.code, Object.keys(JSON.parse(help.text) as object)], [0, ['commands']], help.stderr);
    }
    assert.deepEqual(JSON.parse((await ron(t, ['--json', '--version'])).text), { version: '0.1.0' });
  });

  test('every command has help with examples', async (t) => {
    for (const name of Object.keys(COMMANDS)) {
      const command = await loadCommand(name);
      assert.equal(command.name, name);
      assert.ok(Object.keys(command.examples).length > 0, name);
    }
    const help = await ron(t, ['get', '--help']);
    assert.equal(help.code, 0);
    assert.match(help.text, /^usage: ron get ADDRESS\|NAME \[-o FILE\]/);
    assert.match(help.text, /\n {2}-o, --output FILE +Write to this file/);
    assert.match(help.text, /\nexamples:\n {2}ron get b3:\.\.\. -o photo\.jpg/);
    assert.equal((await ron(t, ['help', 'get'])).text, help.text);
  });

  test('an error for a stopped service names it and the command to start it', async (t) => {
    const dir = await temporaryDir(t);
    const url = await unusedUrl();
    const put = await ron(t, ['put', '-', '--url', url], { cwd: dir, input: 'x' });
    assert.equal(put.code, 69);
    assert.equal(put.stderr, `ron: storage is not running at ${url}: start it with \`ron up\`\n`);
    const json = await ron(t, ['put', '-', '--url', url, '--json'], { cwd: dir, input: 'x' });
    const { error } = JSON.parse(json.stderr) as { error: { code: string; exit: number } };
    assert.deepEqual([error.code, error.exit], ['unreachable', 69]);
  });

  test('a named capability file must exist, be valid, and is never quoted', async (t) => {
    const dir = await temporaryDir(t);
    const put = (file: string): ReturnType<typeof ron> =>
      ron(t, ['put', '-'], { cwd: dir, input: 'x', env: { RON_CAPABILITY_FILE: file } });
    const missing = await put('no.cap');
    assert.equal(missing.code, 77);
    assert.match(missing.stderr, /no capability for storage in no\.cap/);
    await writeFile(join(dir, 'bad.cap'), '{"storage": 7, "secret": "abc"}', { mode: 0o600 });
    const bad = await put('bad.cap');
    assert.equal(bad.code, 77);
    assert.match(bad.stderr, /bad\.cap is not a capability file/);
    assert.ok(!bad.stderr.includes('abc'), 'the file is not quoted');
    const none = await ron(t, ['cap', 'show'], { cwd: dir });
    assert.equal(none.code, 66);
    assert.match(none.stderr, /\.ron\/root\.cap does not exist: `ron up` creates it/);
  });

  test('control characters from a server are escaped', async (t) => {
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

  test('the completion script is accepted by the shell and completes commands and flags', async (t) => {
    const script = (await ron(t, ['completion', 'bash'])).text;
    const test_script = `${script}\nCOMP_WORDS=(ron ge); COMP_CWORD=1; _ron; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(ron get --ra); COMP_CWORD=2; _ron; echo "\${COMPREPLY[@]}"`;
    const bash = spawnSync('bash', ['-c', test_script], { encoding: 'utf8' });
    assert.equal(bash.stdout, 'get\n--range\n', bash.stderr);
    assert.match((await ron(t, ['completion', 'fish'])).text, /complete -c ron -n __fish_use_subcommand -f -a put/);
  });

  test('config check lists all problems', async (t) => {
    const dir = await temporaryDir(t);
    await writeFile(join(dir, 'ron.toml'), '[storage]\nread_timeout = "soon"\nserver.max_inflght = 1\n');
    const check = await ron(t, ['config', 'check', '--config', 'ron.toml'], { cwd: dir });
    assert.equal(check.code, 78);
    assert.match(check.stderr, /\[storage\] read_timeout: expected a duration .*, found "soon" \(file ron\.toml\)/);
    assert.match(check.stderr, /\[storage\] server\.max_inflght: .*did you mean server\.max_inflight\?/);
    await writeFile(join(dir, 'good.toml'), (await ron(t, ['config', 'print'], { cwd: dir })).text);
    const good = await ron(t, ['config', 'check', '--config', 'good.toml'], { cwd: dir });
    assert.equal(good.code, 0, good.stderr);
    assert.equal(good.text, `Configuration is valid (${SERVICE_TABLE.map(({ name }) => name).join(', ')})\n`);
  });
});
