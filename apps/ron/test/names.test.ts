/** `ron name`, `ron put --name`, `ron get NAME` and `ron find` against a real node. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress, type Address } from '@ron/proto';
import { decodeNameRecord, encodeNameRecord, signedNameBytes, type NameRecord } from '@ron/proto/names';
import { CliError } from '../src/exits.ts';
import { Io } from '../src/io.ts';
import { servicesOf, type NodeServices } from '../src/names/node-services.ts';
import { publish } from '../src/names/publish.ts';
import { CleanUps, command, inTemporaryDir, up, type Ended } from './support.ts';

const SCRIPT = fileURLToPath(new URL('../../../docs/verify-name.sh', import.meta.url));
const addressOf = (text: string): string => formatAddress(blake3(Buffer.from(text)));
const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

interface Shown {
  readonly name: string;
  readonly key: string;
  readonly address: string | null;
  readonly seq: number;
  readonly not_after: number;
  readonly previous: string | null;
  readonly moved_to: string | null;
  readonly hash: string;
  readonly record: string;
  readonly signature: string;
  readonly conflict: boolean;
}

/** The exit code and output of the script in the documentation. */
function verified(json: string): { status: number | null; stdout: string } {
  const { status, stdout } = spawnSync('sh', [SCRIPT], { input: json, encoding: 'utf8' });
  return { status, stdout };
}

suite('names', () => {
  const cleanUps = new CleanUps();
  let dir: string;
  const run = (...args: string[]): Promise<Ended> => command(args, { RON_DIR: dir, XDG_CACHE_HOME: `${dir}-cache` });
  const ok = async (...args: string[]): Promise<string> => {
    const ended = await run(...args);
    assert.equal(ended.code, 0, `${args.join(' ')}: ${ended.stderr}`);
    return ended.text;
  };
  const json = async <T = Shown>(...args: string[]): Promise<T[]> =>
    (await ok(...args, '--json'))
      .trim()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as T);
  const one = async (...args: string[]): Promise<Shown> => (await json(...args))[0]!;

  before(async () => {
    const work = await inTemporaryDir(cleanUps);
    dir = `${work}/node`;
    await up(cleanUps, dir);
    for (const text of ['one', 'two', 'three']) await writeFile(text, text);
  });
  after(() => cleanUps.run());

  test('the first set creates the key, which bare labels belong to, and get fetches the object', async () => {
    const both = await Promise.all([run('name', 'set', 'docs/one', 'one'), run('name', 'set', 'docs/two', 'two')]);
    for (const { code, stderr } of both) assert.equal(code, 0, stderr);
    assert.match(
      both.map(({ stderr }) => stderr).join(''),
      /created the key of your names, names\/raw\/ed25519\/.*; back up node\/kms: /,
    );
    const [key, ...others] = await json<{ key: string; kid: string }>('name', 'keys');
    assert.deepEqual(others, [], 'two first commands at once create one key');
    assert.deepEqual(await json('name', 'trust'), [{ prefix: '', key: key!.key }]);
    assert.match((await run('keys', 'rotate', key!.kid)).stderr, /rotate: false/);
    assert.match(both[0].text, new RegExp(`^docs/one  ${addressOf('one')}  seq 1, until 20`));
    assert.equal(await ok('get', 'docs/one'), 'one');
    await ok('get', `name:docs/two@${key!.key}`, '-o', 'copy');
    assert.equal(await readFile('copy', 'utf8'), 'two');
  });

  test('a name follows its address: set, history, rm, set', async () => {
    const first = await one('name', 'set', 'life', addressOf('one'));
    const again = await one('name', 'set', 'life', addressOf('one'));
    assert.equal(again.seq, 1, 'the same address is not published again');
    const second = await one('name', 'set', 'life', 'two', '--ttl', '5', '--days', '10');
    assert.deepEqual([second.seq, second.previous, second.address], [2, first.hash, addressOf('two')]);
    const removed = await one('name', 'rm', 'life');
    assert.deepEqual([removed.seq, removed.address, (await one('name', 'rm', 'life')).seq], [3, null, 3]);
    const get = await run('get', 'life');
    assert.deepEqual([get.code, /life was removed/.test(get.stderr)], [66, true], get.stderr);
    assert.equal((await one('name', 'set', 'life', 'three')).seq, 4);
    assert.equal(await ok('get', 'life'), 'three');
    const history = await json('name', 'history', 'life');
    assert.deepEqual(
      history.map(({ seq, address }) => [seq, address]),
      [
        [4, addressOf('three')],
        [3, null],
        [2, addressOf('two')],
        [1, addressOf('one')],
      ],
    );
    assert.match(await ok('name', 'history', 'life'), /^seq 4 {2}b3:.*\nseq 3 {2}removed {2}until/);
    assert.match(await ok('name', 'get', 'life'), /^name +life\naddress +b3:/);
  });

  test('OpenSSL verifies every record with the documented script, and refuses a changed one', async () => {
    await ok('name', 'set', 'docs/one', 'one');
    const shown = await ok('name', 'get', 'docs/one', '--json');
    const { key, record } = JSON.parse(shown) as Shown;
    assert.deepEqual(verified(shown), { status: 0, stdout: `valid: seq 1 docs/one, key ${key}\n` });
    const bytes = Buffer.from(record, 'base64url');
    bytes[bytes.length - 1]! ^= 1;
    const changed = verified(shown.replace(record, base64url(bytes)));
    assert.deepEqual([changed.status, changed.stdout], [1, `NOT VALID: seq 1 docs/one, key ${key}\n`]);
  });

  test('put --name stores and publishes; ls and renew cover all own names', async () => {
    const [receipt] = await json<{ address: string; name: Shown }>('put', 'three', '--name', 'list/three');
    assert.deepEqual([receipt!.address, receipt!.name.seq], [addressOf('three'), 1]);
    assert.equal((await ok('put', 'three', '--name', 'list/three')).trim(), addressOf('three'));
    const short = await one('name', 'set', 'list/short', 'one', '--days', '3');
    assert.match(await ok('name', 'ls', 'list'), /^list\/short {2}b3:.* {2}expires in [23] days\nlist\/three {2}b3:/);
    assert.deepEqual(
      (await json('name', 'ls', 'list')).map(({ name }) => name),
      ['list/short', 'list/three'],
    );
    const renewed = await json('name', 'renew');
    assert.ok(renewed.some(({ name }) => name === 'list/short') && !renewed.some(({ name }) => name === 'list/three'));
    const now = await one('name', 'get', 'list/short');
    assert.deepEqual([now.seq, now.address, now.not_after > short.not_after], [2, short.address, true]);
    assert.match((await run('name', 'renew')).stderr, /no name expires within 30 days/);
    assert.equal((await one('name', 'renew', 'list/three')).seq, 2);
  });

  test('the names of another key are used through the trust list or with the key', async () => {
    const kid = (
      await ok('keys', 'create', '--tenant', 'names', '--purpose', 'raw', '--alg', 'ed25519', '--no-rotate')
    ).trim();
    const other = (await json<{ key: string; kid: string }>('name', 'keys')).find((each) => each.kid === kid)!.key;
    const set = await run('name', 'set', 'friends/ada/x', 'two', '--key', kid);
    assert.equal(set.code, 0, set.stderr);
    const bare = await run('get', 'friends/ada/x');
    assert.equal(bare.code, 66, 'the key of the node has no such name');
    assert.equal(await ok('get', `friends/ada/x@${other}`), 'two');
    assert.match(await ok('name', 'trust', 'friends/ada', other), /labels below friends\/ada belong to/);
    assert.equal(await ok('get', 'friends/ada/x'), 'two');
    assert.equal((await one('name', 'set', 'friends/ada/x', 'one')).key, other, 'the trusted key signs');
    assert.equal((await json<{ prefix: string }>('name', 'trust', 'ls')).length, 2);
    await ok('name', 'trust', 'rm', 'friends/ada');
    assert.equal((await run('get', 'friends/ada/x')).code, 66);
    assert.equal((await run('name', 'trust', 'rm', 'friends/ada')).code, 66);
  });

  test('a moved name is followed, and its old key cannot publish it any more', async () => {
    const keys = await json<{ key: string; kid: string }>('name', 'keys');
    const [{ key: own }] = (await json<{ key: string }>('name', 'trust')) as [{ key: string }];
    const next = keys.find(({ key }) => key !== own)!;
    await ok('name', 'set', 'moving', 'one', '--key', own);
    assert.match((await run('name', 'move', 'moving', next.kid)).stderr, /Confirm with --yes/);
    const moved = await one('name', 'move', 'moving', next.key, '--key', own, '--yes');
    assert.deepEqual([moved.seq, moved.moved_to, moved.address], [2, next.key, null]);
    assert.equal(await ok('get', 'moving'), 'one', 'the new key published it first');
    const late = await run('name', 'set', 'moving', 'two', '--key', own);
    assert.deepEqual([late.code, /moved to the key/.test(late.stderr)], [1, true], late.stderr);
    await ok('name', 'set', 'moving', 'two', '--key', next.kid);
    assert.equal(await ok('get', 'moving'), 'two');
  });

  test('a set that another command overtook is published after it; a renewal fails and shows both records', async () => {
    const [key] = (await json<{ key: string; kid: string }>('name', 'keys')) as [{ key: string; kid: string }];
    const io = new Io({ stdout: process.stdout, stderr: process.stderr, env: { RON_DIR: dir } });
    const notes: string[] = [];
    io.note = (text) => void notes.push(text);
    const honest = servicesOf({ values: {}, io, signal: AbortSignal.timeout(60_000) }, 'index');
    /** Another command publishes before each of the first `times` signatures. */
    const overtaken = (times: number, ...sources: string[]): NodeServices => {
      let left = times;
      const kms: NodeServices['kms'] = async (work) => {
        if (left-- > 0) await ok('name', 'set', 'race', sources[left]!, '--key', key.key);
        return await honest.kms(work);
      };
      return { ...honest, kms };
    };
    const next = () => ({ value: addressOf('one') as Address });
    const init = { label: 'race', key, next, life_s: 1000, ttl_s: undefined };
    await ok('name', 'set', 'race', 'three', '--key', key.key);
    const set = await publish({ ...init, onConflict: 'retry' }, overtaken(1, 'two'), io);
    assert.deepEqual([set.record.seq, set.record.value], [3, addressOf('one')]);
    assert.deepEqual(notes, [`race was changed by another command to ${addressOf('two')}; publishing after it`]);
    const twice = publish({ ...init, onConflict: 'retry' }, overtaken(2, 'three', 'two'), io);
    await assert.rejects(twice, /race was changed meanwhile; nothing was published\n {5}now: {3}b3:.*, seq 5, record/);
    const renewal = publish({ ...init, onConflict: 'fail' }, overtaken(1, 'two'), io);
    await assert.rejects(renewal, (error) => error instanceof CliError && error.exit === 'failed');
    assert.equal((await one('name', 'get', `race@${key.key}`)).address, addressOf('two'));
  });

  test('a capability for names below a prefix publishes there, and changes nothing else', async () => {
    const caveats = ['scopes in index:name', 'name ^= team/'];
    const [key] = (await json<{ key: string }>('name', 'keys')) as [{ key: string }];
    const index = (await ok('cap', 'attenuate', ...caveats)).trim();
    const both = await run('cap', 'attenuate', 'scopes in index:name,storage:get');
    assert.equal(both.code, 64);
    assert.match(both.stderr, /--audience is required: the file has /);
    const root = JSON.parse(await readFile(`${dir}/root.cap`, 'utf8')) as object;
    await writeFile('team.cap', JSON.stringify({ ...root, index }), { mode: 0o600 });
    const limited = ['--capability-file', 'team.cap', '--key', key.key];
    assert.equal((await one('name', 'set', 'team/x', 'one', ...limited)).seq, 1);
    const unsure = await run('name', 'set', 'team/x', 'one', ...limited.slice(0, 2));
    assert.match(unsure.stderr, /2 keys that sign names: choose one with --key/, 'it may not read the trust list');
    for (const args of [
      ['name', 'set', 'teams', 'one', ...limited],
      ['name', 'trust', 'team', key.key, ...limited.slice(0, 2)],
      ['name', 'ls', ...limited.slice(0, 2)],
    ]) {
      const { code, stderr } = await run(...args);
      assert.equal(code, 77, `${args.join(' ')}: ${stderr}`);
    }
  });

  test('a trusted key that is disabled or lost is not replaced by another one', async () => {
    const keys = await json<{ key: string; kid: string }>('name', 'keys');
    const [{ key: own }] = (await json<{ key: string }>('name', 'trust')) as [{ key: string }];
    const named = keys.map((each) => each.kid.slice(0, each.kid.lastIndexOf('#')));
    const name = named[keys.findIndex(({ key }) => key === own)]!;
    for (const each of named) await ok('keys', 'disable', each);
    const disabled = await run('name', 'set', 'kept', 'one');
    for (const each of named) await ok('keys', 'enable', each);
    assert.equal(disabled.code, 64, disabled.stderr);
    assert.match(
      disabled.stderr,
      new RegExp(`trusts the key ${own} for kept.*is disabled.*ron keys enable ${name}`, 's'),
    );
    const lost = 'ab'.repeat(32);
    await ok('name', 'trust', 'lost', lost);
    const refused = await run('name', 'set', 'lost/x', 'one');
    await ok('name', 'trust', 'rm', 'lost');
    assert.equal(refused.code, 64, refused.stderr);
    assert.match(refused.stderr, /is not in kms: restore it from the backup/);
    assert.deepEqual(await json('name', 'keys'), keys, 'no key was created');
  });

  test('find shows providers and explains the lookup', async () => {
    const address = (await ok('put', 'one', '--name', 'found')).trim();
    const [found] = await json<{ address: string; name: { seq: number }; receipt: object }>(
      'find',
      'found',
      '--receipt',
    );
    assert.deepEqual([found!.address, found!.name.seq], [address, 1]);
    assert.ok(found!.receipt !== undefined);
    assert.match(await ok('find', address), new RegExp(`^address +${address}\n`));
    assert.match(await ok('find', 'found', '--receipt', '--fresh'), /\nlookup +\d+ ms of \d+ ms/);
  });

  test('invalid arguments and missing names are refused with advice', async () => {
    const key = 'ab'.repeat(32);
    const cases: [string[], number, RegExp][] = [
      [['name', 'explode'], 64, /unknown verb explode: expected set, get/],
      [['name', 'set', 'x'], 64, /expected `name set LABEL ADDRESS\|FILE`/],
      [['name', 'set', 'Docs', 'one'], 64, /is not a valid name: a label consists of .* upper case/],
      [['name', 'set', 'a//b', 'one'], 64, /segment 2 is empty/],
      [['name', 'set', `x@${key}`, 'one'], 64, /choose the key with --key/],
      [['name', 'set', 'x', 'b3:12'], 64, /is not a valid address/],
      [['name', 'set', 'x', 'missing-file'], 66, /no such file/],
      [['name', 'set', 'x', 'one', '--days', '9999'], 64, /--days must be a number from 1 to 730/],
      [['name', 'set', 'x', 'one', '--ttl', '-1'], 64, /--ttl/],
      [['name', 'set', 'x', 'one', '--key', key], 64, /kms has no enabled key/],
      [['name', 'get', 'nothing/here'], 66, /nothing\/here: no record .*`ron name ls`/],
      [['name', 'renew', 'nothing/here'], 66, /nothing\/here has no address/],
      [['name', 'rm', 'nothing/here'], 66, /nothing\/here has no address/],
      [['name', 'trust', 'a/'], 64, /expected `name trust PREFIX KEY`/],
      [['name', 'trust', 'a/', key], 64, /not a prefix of labels/],
      [['name', 'trust', 'a', 'xyz'], 64, /kms has no enabled key xyz/],
      [['name', 'ls', 'A'], 64, /not a prefix of labels/],
      [['get', 'nothing/here'], 66, /nothing\/here: no record/],
      [['get', 'not a name'], 64, /is not a valid name/],
      [['get', `x@${key.slice(1)}`], 64, /key after "@" must have 64/],
      [['find', 'name:'], 64, /is not a valid name/],
      [['put', 'one', '--name', 'No'], 64, /upper case/],
    ];
    for (const [args, code, message] of cases) {
      const ended = await run(...args);
      assert.equal(ended.code, code, `${args.join(' ')}: ${ended.stderr}`);
      assert.match(ended.stderr, message);
    }
  });
});

test('the script in the documentation finds a fork in two records of one key', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('hex');
  const signed = (fields: Partial<NameRecord>): { record: string; signature: string } => {
    const bytes = encodeNameRecord({ key, label: 'docs/x', seq: 1, not_after: 2_000_000_000, ttl_s: 60, ...fields });
    assert.ok(decodeNameRecord(bytes).ok);
    return { record: base64url(bytes), signature: base64url(sign(null, signedNameBytes(bytes), privateKey)) };
  };
  const mine = signed({ seq: 300, previous: 'aa'.repeat(32) });
  const rival = signed({ seq: 300, previous: 'aa'.repeat(32), value: formatAddress(new Uint8Array(32)) });
  const honest = verified(JSON.stringify({ ...mine, history: [signed({})] }));
  assert.deepEqual([honest.status, honest.stdout.match(/^valid/gm)?.length], [0, 2]);
  const forked = verified(JSON.stringify({ ...mine, conflict: true, rival }));
  assert.equal(forked.status, 2);
  assert.match(forked.stdout, /^valid: seq 300 docs\/x.*\nvalid: seq 300 docs\/x.*\nFORKED/);
  assert.equal(verified(JSON.stringify({ ...mine, rival: { ...rival, signature: mine.signature } })).status, 1);
  assert.equal(verified('{}').status, 1);
});
