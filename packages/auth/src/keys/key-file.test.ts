import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as fc from 'fast-check';
import {
  createKeyFile,
  formatKeyFile,
  parseKeyFile,
  readKeyFile,
  replaceKeyFile,
  withKeyFileLock,
} from './key-file.ts';
import type { KeySet } from './key-ring.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);

class Directory implements AsyncDisposable {
  readonly path: string;
  private constructor(path: string) {
    this.path = path;
  }
  static async make(): Promise<Directory> {
    return new Directory(await mkdtemp(join(tmpdir(), 'ron-keys-')));
  }
  file(name = 'keys'): string {
    return join(this.path, name);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true });
  }
}

const key = (id: string, fill: number) => ({ key_id: id, secret: new Uint8Array(32).fill(fill) });
const set = (...keys: KeySet['keys']): KeySet => ({ audience: 'root', keys });
const one = (): KeySet => set(key('k1', 1));

const arbitrarySet: fc.Arbitrary<KeySet> = fc
  .record({
    audience: fc.constantFrom('root' as const, 'storage' as const, 'kms' as const),
    keys: fc.uniqueArray(
      fc.record({
        key_id: fc.stringMatching(/^[a-z0-9]{1,32}$/),
        secret: fc.uint8Array({ minLength: 32, maxLength: 32 }),
      }),
      { minLength: 1, maxLength: 8, selector: (entry) => entry.key_id },
    ),
  })
  .map(({ audience, keys }) => ({
    audience,
    keys: keys.map(({ key_id, secret }) => ({ key_id, secret: Uint8Array.from(secret) })),
  }));

test('a key set survives a round trip through the file format', () => {
  fc.assert(
    fc.property(arbitrarySet, (keys) => {
      assert.deepEqual(parseKeyFile(formatKeyFile(keys)), keys);
    }),
    { numRuns },
  );
});

test('the format matches its description', () => {
  const text = formatKeyFile({ audience: 'storage', keys: [key('new', 0xab), key('old', 0x01)] }).toString();
  assert.match(text, /^ron-keys v1 audience storage\nnew (ab){32}\nold (01){32}\ncheck [0-9a-f]{16}\n$/);
  assert.match(formatKeyFile(one()).toString(), /^ron-keys v1 root\nk1 (01){32}\n/);
});

test('any damage to the file is detected without an exception', () => {
  const bytes = formatKeyFile(set(key('k1', 1), key('k2', 2)));
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const damaged = Buffer.from(bytes);
    damaged[bit >> 3]! ^= 1 << (bit & 7);
    assert.equal(typeof parseKeyFile(damaged), 'string', `bit ${bit}`);
  }
  for (let length = 0; length < bytes.length; length++)
    assert.equal(typeof parseKeyFile(bytes.subarray(0, length)), 'string');
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (some) => assert.equal(typeof parseKeyFile(some), 'string')),
    { numRuns },
  );
});

test('a file with a valid check line and invalid content is refused', () => {
  const secret = 'ab'.repeat(32);
  const cases: [string, RegExp][] = [
    ['', /first line/],
    ['ron-keys v2 root\n', /first line/],
    ['ron-keys v1 audience nowhere\n', /first line/],
    ['ron-keys v1 root\n', /1 to 8 keys/],
    [`ron-keys v1 root\n${Array.from({ length: 9 }, (_, at) => `k${at} ${secret}\n`).join('')}`, /1 to 8 keys/],
    [`ron-keys v1 root\nk1 ${secret}`, /first line/],
    [`ron-keys v1 root\nk1 ${secret.slice(1)}\n`, /malformed/],
    [`ron-keys v1 root\nk1 ${secret.toUpperCase()}\n`, /malformed/],
    [`ron-keys v1 root\nk1 ${secret.replace('b', 'g')}\n`, /malformed/],
    [`ron-keys v1 root\nK1 ${secret}\n`, /malformed/],
    [`ron-keys v1 root\n${secret}\n`, /malformed/],
    [`ron-keys v1 root\nk1 ${secret}\nk1 ${secret}\n`, /twice/],
  ];
  for (const [body, problem] of cases) assert.match(problemOf(withCheck(body)), problem, body);
  assert.notEqual(typeof parseKeyFile(withCheck(`ron-keys v1 root\nk1 ${secret}\n`)), 'string');
});

test('a new file is private to its owner under any umask, and no other file is left behind', async () => {
  await using directory = await Directory.make();
  const umask = process.umask(0);
  try {
    assert.equal(await createKeyFile(directory.file('deep/er/keys'), one()), true);
  } finally {
    process.umask(umask);
  }
  assert.equal((await stat(directory.file('deep/er/keys'))).mode & 0o777, 0o600);
  assert.equal((await stat(directory.file('deep/er'))).mode & 0o777, 0o700);
  assert.deepEqual(await readdir(directory.file('deep/er')), ['keys']);
  assert.deepEqual(await readKeyFile(directory.file('deep/er/keys')), one());
});

test('creating never replaces, replacing does', async () => {
  await using directory = await Directory.make();
  assert.equal(await createKeyFile(directory.file(), one()), true);
  const before = await readFile(directory.file());
  assert.equal(await createKeyFile(directory.file(), set(key('k2', 2))), false);
  assert.deepEqual(await readFile(directory.file()), before);
  await replaceKeyFile(directory.file(), set(key('k2', 2)));
  assert.deepEqual(await readKeyFile(directory.file()), set(key('k2', 2)));
  assert.equal((await stat(directory.file())).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(directory.path), ['keys']);
});

test('a missing file or directory is not an error', async () => {
  await using directory = await Directory.make();
  assert.equal(await readKeyFile(directory.file()), undefined);
  assert.equal(await readKeyFile(directory.file('no/such')), undefined);
});

test('a file that other users can access is refused with the command that fixes it', async () => {
  await using directory = await Directory.make();
  const path = directory.file();
  await createKeyFile(path, one());
  for (const mode of [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666]) {
    await chmod(path, mode);
    await assert.rejects(readKeyFile(path), {
      code: 'not_ready',
      message: `${path} is open to other users (mode 0${mode.toString(8)}): run chmod 600 ${path}`,
    });
  }
  await chmod(path, 0o400);
  assert.deepEqual(await readKeyFile(path), one());
});

test(
  'a file of another user is refused',
  { skip: process.geteuid?.() !== 0 && 'only root can give files away' },
  async () => {
    await using directory = await Directory.make();
    const path = directory.file();
    await createKeyFile(path, one());
    await chown(path, 12_345, 12_345);
    await assert.rejects(readKeyFile(path), {
      message: `${path} belongs to user 12345, this process runs as 0: run chown 0 ${path}`,
    });
  },
);

test('a directory, a large file and garbage are refused with the reason', async () => {
  await using directory = await Directory.make();
  await mkdir(directory.file('folder'), { mode: 0o700 });
  await assert.rejects(readKeyFile(directory.file('folder')), { code: 'not_ready', message: /not a regular file/ });
  await writeFile(directory.file('large'), 'x'.repeat(5000), { mode: 0o600 });
  await assert.rejects(readKeyFile(directory.file('large')), { code: 'not_ready', message: /5000 bytes/ });
  await writeFile(directory.file('garbage'), 'my secret is hunter2\n', { mode: 0o600 });
  await assert.rejects(readKeyFile(directory.file('garbage')), (error: Error) => {
    assert.match(error.message, /is damaged \(its check line does not match\): restore it from a backup/);
    assert.doesNotMatch(error.message, /hunter2/);
    return true;
  });
});

test('of two concurrent changes the second is refused with the remedy, and the lock is released when the first fails', async () => {
  await using directory = await Directory.make();
  const path = directory.file();
  await withKeyFileLock(path, async () => {
    await assert.rejects(
      withKeyFileLock(path, async () => assert.fail('it ran')),
      {
        code: 'conflict',
        message: `another process is changing ${path}; if none is, remove ${path}.lock and try again`,
      },
    );
  });
  await assert.rejects(
    withKeyFileLock(path, () => Promise.reject(new Error('no'))),
    /no/,
  );
  assert.equal(await withKeyFileLock(path, async () => 7), 7);
  assert.deepEqual(await readdir(directory.path), []);
});

function problemOf(bytes: Uint8Array): string {
  const parsed = parseKeyFile(bytes);
  return typeof parsed === 'string' ? parsed : assert.fail('it was read');
}

function withCheck(body: string): Buffer {
  return Buffer.from(`${body}check ${hash('sha256', body).slice(0, 16)}\n`);
}
