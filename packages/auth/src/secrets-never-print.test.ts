import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { inspect } from 'node:util';
import pino from 'pino';
import { Bench, signal } from '../test/support.ts';
import { KeyRing } from './keys/key-ring.ts';
import { FileKeySource } from './keys/key-source.ts';
import { decodeToken } from './capability/token.ts';

/** All the ways in which a value reaches a terminal or a log. */
function prints(value: object): string[] {
  let logged = '';
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      logged += chunk.toString();
      done();
    },
  });
  const log = pino({}, sink);
  log.info({ value }, 'as a field');
  log.info(value, 'as the object');
  log.error({ err: Object.assign(new Error('x'), { value }) }, 'on an error');
  const wide = { depth: 20, showHidden: true, getters: true, maxArrayLength: null, maxStringLength: null } as const;
  return [
    logged,
    inspect(value),
    inspect({ deep: [{ value }] }, wide),
    inspect(value, wide),
    JSON.stringify(value),
    JSON.stringify({ value }),
    ...Object.values(value).map((part: unknown) => inspect(part, wide)),
  ];
}

function assertHides(value: object, secrets: readonly Uint8Array[]): void {
  const spellings = secrets.flatMap((secret) => {
    const bytes = Buffer.from(secret);
    return [
      ...(['hex', 'base64', 'base64url'] as const).map((encoding) => bytes.toString(encoding).slice(0, 16)),
      bytes.subarray(0, 5).join(','),
      bytes.subarray(0, 5).join(', '),
      `"0":${bytes[0]},"1":${bytes[1]},"2":${bytes[2]}`,
      [...bytes.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' '),
    ];
  });
  for (const text of prints(value)) {
    for (const spelling of spellings) assert.ok(!text.includes(spelling), text);
  }
}

test('the search finds a printed secret', () => {
  const secret = new Uint8Array(32).map((_, at) => 200 + at);
  for (const careless of [{ secret }, { secret: Buffer.from(secret) }, { hex: Buffer.from(secret).toString('hex') }]) {
    assert.throws(() => assertHides(careless, [secret]), assert.AssertionError);
  }
});

test('key sources, keys and rings print no key', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ron-keys-'));
  try {
    const bench = new Bench();
    await using file = await FileKeySource.open({ path: join(directory, 'keys') }, signal);
    for (const keys of [bench.keys, file]) {
      const current = await keys.current('storage', signal);
      assertHides(keys, [current.key]);
      assertHides(current, [current.key]);
      assert.match(inspect({ keys }), /KeySource\(/);
    }
    const secret = new Uint8Array(32).fill(0xa5);
    const ring = new KeyRing({ audience: 'root', keys: [{ key_id: 'k1', secret }] });
    assertHides(ring, [secret, ring.key('storage', 'k1')!]);
    assert.equal(inspect(ring), 'KeyRing(root: k1)');
    ring.wipe();
    assert.equal(JSON.stringify(ring), '"KeyRing(root: closed)"');
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('a checker, a verdict and a decoded token print no signature and no key', async () => {
  const bench = new Bench();
  const token = await bench.token({ caveats: ['rate <= 5/s', 'bytes <= 5', 'tenant = a'] });
  const verdict = await bench.allowed(token, { facts_later: ['tenant'] });
  const { key } = await bench.keys.current('storage', signal);
  const signature = Buffer.from(token, 'base64url').subarray(-32);
  const decoded = decodeToken(token);
  assert.ok(decoded.ok);
  for (const value of [bench.checker, verdict, decoded, decoded.value]) assertHides(value, [key, signature]);
  for (const text of prints(bench.checker)) assert.ok(!text.includes(token.slice(-20)));
});
