import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { renderConfigDocs, renderConfigToml } from './docs.ts';
import type { ConfigProblem } from './given.ts';
import { key } from './keys.ts';
import { ConfigError, configValue, defineConfig, loadConfig, type ConfigOf, type LoadInit } from './config.ts';

const schema = defineConfig(
  {
    'server.max_inflight': key.integer({
      default: 512,
      min: 1,
      max: 65_536,
      doc: 'Requests at a time.',
      reloadable: true,
    }),
    'server.bind': key.text({
      default: '127.0.0.1:0',
      pattern: /[\w.]+:\d+/,
      expects: 'host:port',
      doc: 'Where to listen.',
    }),
    read_timeout: key.duration({ default: '5s', min: '1ms', max: '10m', doc: 'For one read.', reloadable: true }),
    'storage.chunk_size': key.size({ default: '64KiB', min: '4KiB', max: '1MiB', doc: 'Chunk size.' }),
    'durability.repair_pacing': key.rate({ default: '50MiB/s', doc: 'For all workers.', reloadable: true }),
    'durability.mode': key.oneOf(['rf', 'ec'], { default: 'rf', doc: 'How to survive a loss.' }),
    'breaker.trip_threshold': key.decimal({ default: 0.5, min: 0, max: 1, doc: 'Error ratio.' }),
    'amnesia.enabled': key.boolean({ default: false, doc: 'Nothing reaches a disk.' }),
    data_dirs: key.list({ default: ['data'], items_max: 3, expects: 'directories', doc: 'Where data lies.' }),
    'auth.root_secret': key.optional(
      key.text({ doc: 'Root key.', secret: true, pattern: /[0-9a-f]{8}/, expects: 'hex' }),
    ),
    'dht.hedge_ms': key.integer({ default: 150, doc: 'Second wave after.' }),
    'dht.deadline_ms': key.integer({ default: 1200, doc: 'Budget.' }),
  },
  (config, report) => {
    if (config.dht.hedge_ms >= config.dht.deadline_ms) report('dht.hedge_ms', 'less than dht.deadline_ms');
  },
);

type Keys = typeof schema extends { keys: infer K } ? K : never;

const load = (init: Omit<LoadInit<Keys>, 'schema' | 'env_prefix'> = {}): ConfigOf<typeof schema> =>
  loadConfig({ schema, env_prefix: 'RON_STORAGE_', ...init });

const toml = (text: string): Omit<LoadInit<Keys>, 'schema'> => ({ file: { path: 'ron.toml', text } });

function problemsOf(init: Omit<LoadInit<Keys>, 'schema' | 'env_prefix'>): readonly ConfigProblem[] {
  try {
    load(init);
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems;
  }
  return [];
}

test('defaults are complete, typed, in base units and deeply frozen', () => {
  const config = load();
  // The types of these are inferred from the table: a wrong one would not compile.
  const inflight: number = config.server.max_inflight;
  const mode: 'rf' | 'ec' = config.durability.mode;
  const secret: string | undefined = config.auth.root_secret;
  const dirs: readonly string[] = config.data_dirs;
  assert.deepEqual([inflight, mode, secret, dirs], [512, 'rf', undefined, ['data']]);
  assert.equal(config.read_timeout, 5000);
  assert.equal(config.storage.chunk_size, 65_536);
  assert.equal(config.durability.repair_pacing, 50 * 1024 ** 2);
  assert.ok(Object.isFrozen(config) && Object.isFrozen(config.server) && Object.isFrozen(config.data_dirs));
  assert.throws(() => Object.assign(config.server, { max_inflight: 1 }), TypeError);
  // @ts-expect-error: no such key
  assert.equal(config.server.max_inflght, undefined);
});

test('flags beat the environment, the environment beats the file, the file beats the default', () => {
  const file = { path: 'ron.toml', text: 'read_timeout = "1s"\n[server]\nmax_inflight = 1' };
  const env = { RON_STORAGE_SERVER_MAX_INFLIGHT: '2', PATH: '/bin', RON_KMS_X: 'of another service' };
  assert.equal(load({ file }).server.max_inflight, 1);
  assert.equal(load({ file, env }).server.max_inflight, 2);
  assert.equal(load({ file, env, flags: ['--server.max_inflight=3'] }).server.max_inflight, 3);
  assert.equal(load({ file, env }).read_timeout, 1000);
});

test('flags take =, a space, a bare boolean and a list', () => {
  const config = load({
    flags: ['--read_timeout', '2s', '--amnesia.enabled', '--data_dirs=a,b', '--server.bind=h:1'],
  });
  assert.equal(config.read_timeout, 2000);
  assert.equal(config.amnesia.enabled, true);
  assert.deepEqual(config.data_dirs, ['a', 'b']);
  assert.equal(load({ flags: ['--amnesia.enabled', 'false'] }).amnesia.enabled, false);
  const [twice] = problemsOf({ flags: ['--read_timeout=1s', '--read_timeout=2s'] });
  assert.equal(twice?.found, 'the flag twice', 'which of the two was meant?');
});

test('a list in a flag may be written as in a file; one that is only begun so is refused', () => {
  assert.deepEqual(load({ flags: ['--data_dirs=["a", "b,c"]'] }).data_dirs, ['a', 'b,c']);
  assert.deepEqual(load({ flags: ['--data_dirs=[::1],b'] }).data_dirs, ['[::1]', 'b']);
  assert.equal(problemsOf({ flags: ['--data_dirs=["a","b"'] }).length, 1);
  assert.equal(problemsOf({ flags: ['--data_dirs=["a",1]'] }).length, 1);
});

test('every problem of every source is listed, with key, source, expected and found', () => {
  const problems = problemsOf({
    file: {
      path: 'etc/ron.toml',
      text: 'colour = 1\nread_timeout = 11\nserver = 5\n[storage]\nchunk_size = "2MiB"\n[durability]\nmode = "raid"',
    },
    env: { RON_STORAGE_SERVER_MAX_INFLIGHT: 'lots', RON_STORAGE_SERVER_MAX_INFLGHT: '5' },
    flags: ['--breaker.trip_treshold=0.1', '--breaker.trip_threshold=1.5', 'stray'],
  });
  const byKey = new Map(problems.map((problem) => [problem.key, problem]));
  assert.deepEqual([...byKey.keys()].toSorted(), [
    '--breaker.trip_treshold',
    'RON_STORAGE_SERVER_MAX_INFLGHT',
    'argument 3',
    'breaker.trip_threshold',
    'colour',
    'durability.mode',
    'server',
    'server.max_inflight',
    'storage.chunk_size',
  ]);
  assert.deepEqual(byKey.get('server.max_inflight'), {
    key: 'server.max_inflight',
    source: 'env RON_STORAGE_SERVER_MAX_INFLIGHT',
    expected: 'an integer from 1 to 65536',
    found: '"lots"',
  });
  assert.deepEqual(byKey.get('storage.chunk_size'), {
    key: 'storage.chunk_size',
    source: 'file etc/ron.toml',
    expected: 'a size from 4KiB to 1MiB',
    found: '"2MiB"',
  });
  assert.equal(byKey.get('--breaker.trip_treshold')?.nearest, '--breaker.trip_threshold');
  assert.equal(byKey.get('RON_STORAGE_SERVER_MAX_INFLGHT')?.nearest, 'RON_STORAGE_SERVER_MAX_INFLIGHT');
  assert.equal(byKey.get('durability.mode')?.expected, 'one of rf, ec');
  assert.equal(byKey.get('breaker.trip_threshold')?.source, 'flag --breaker.trip_threshold');
  assert.equal(byKey.get('colour')?.nearest, undefined);
  const { message } = new ConfigError(problems);
  assert.match(message, /^9 configuration problems\n/);
  assert.match(message, /RON_STORAGE_SERVER_MAX_INFLGHT: .*did you mean RON_STORAGE_SERVER_MAX_INFLIGHT\?/);
});

test('a bad value is refused even where a stronger source gives a good one', () => {
  const problems = problemsOf({ ...toml('read_timeout = "soon"'), flags: ['--read_timeout=1s'] });
  assert.deepEqual(
    problems.map((problem) => [problem.key, problem.source]),
    [['read_timeout', 'file ron.toml']],
  );
});

test('types are not coerced: each wrong one is refused', () => {
  const wrong = [
    'server.max_inflight = "512"',
    'server.max_inflight = 512.5',
    'server.max_inflight = true',
    'server.max_inflight = [1]',
    'server.max_inflight = {}',
    'server.max_inflight = 1979-05-27',
    'server.max_inflight = 99999999999999999999',
    'server.max_inflight = 0',
    'server.max_inflight = 65537',
    'server.max_inflight = nan',
    'server.bind = 80',
    'server.bind = "no port"',
    'server.bind = "h:1\\u0000"',
    'read_timeout = 1.5',
    'read_timeout = "0ms"',
    'amnesia.enabled = 1',
    'amnesia.enabled = "true"',
    'data_dirs = "a"',
    'data_dirs = ["a", 1]',
    'data_dirs = ["a", "b", "c", "d"]',
    'breaker.trip_threshold = -0.1',
    'durability.repair_pacing = "50MiB"',
  ];
  for (const text of wrong) {
    const problems = problemsOf(toml(text));
    assert.equal(problems.length, 1, text);
    assert.equal(problems[0]!.key, text.split(' ')[0], text);
  }
});

test('values quoted in a message cannot control the terminal', () => {
  const hostile = '\u001b[2J\u009b2J\u007f';
  const problems = [
    ...problemsOf({ flags: [`--read_timeout=${hostile}`, `--${hostile}=1`] }),
    ...problemsOf({ env: { [`RON_STORAGE_${hostile}`]: 'x', RON_STORAGE_DURABILITY_MODE: hostile } }),
    ...problemsOf(toml(`data_dirs = ["a", "b", "c", "\u009b"]`)),
  ];
  assert.equal(problems.length, 5);
  // oxlint-disable-next-line no-control-regex -- the assertion is about control characters
  assert.doesNotMatch(new ConfigError(problems).message, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
  assert.match(new ConfigError(problems).message, /\\u009b2J/);
});

test('bad TOML names line and column and does not quote the file', () => {
  const [problem, ...rest] = problemsOf(toml('read_timeout = "5s"\n[auth]\nroot_secret = "deadbeef\n'));
  assert.equal(rest.length, 0);
  assert.match(problem!.source, /^file ron\.toml line 3 column \d+$/);
  assert.doesNotMatch(new ConfigError([problem!]).message, /deadbeef/);
});

test('the value of a secret, or of an unknown key, is in no message and no document', () => {
  const secret = 'hunter2-hunter2';
  const sources: Parameters<typeof problemsOf>[0][] = [
    toml(`auth.root_secret = "${secret}"`),
    toml(`auth.root_secrt = "${secret}"`),
    { env: { RON_STORAGE_AUTH_ROOT_SECRET: secret } },
    { env: { RON_STORAGE_AUTH_ROOT_SECRT: secret } },
    { flags: [`--auth.root_secret=${secret}`] },
    { flags: ['--auth.root_secrt', secret] },
    { flags: [secret] },
    { flags: [`--auth.root_secret=deadbeef`, '--auth.root_secret', secret] },
  ];
  for (const source of sources) {
    const problems = problemsOf(source);
    assert.equal(problems.length, 1);
    assert.doesNotMatch(new ConfigError(problems).message, /hunter2/);
  }
  const config = load({ env: { RON_STORAGE_AUTH_ROOT_SECRET: 'deadbeef' } });
  assert.equal(config.auth.root_secret, 'deadbeef');
  assert.doesNotMatch(renderConfigToml(schema, config), /deadbeef/);
});

test('values that contradict each other are refused by the check of the table', () => {
  const problems = problemsOf({ ...toml('dht.hedge_ms = 2000') });
  assert.deepEqual(problems, [
    { key: 'dht.hedge_ms', source: 'file ron.toml', expected: 'less than dht.deadline_ms', found: '2000' },
  ]);
});

test('a key without a default must be set', () => {
  const strict = defineConfig({ token: key.text({ doc: 'Must be there.', secret: true }) });
  assert.throws(() => loadConfig({ schema: strict }), /token: expected a line of text.*it has no default/s);
  assert.equal(loadConfig({ schema: strict, flags: ['--token=x'] }).token, 'x');
});

test('one file for all services: only its own table is read, and everything at the top is a table', () => {
  const text = '[storage]\nread_timeout = "1s"\n[storage.storage]\nchunk_size = "8KiB"\n[kms]\nanything = 1';
  const config = load({ file: { path: 'ron.toml', text, table: 'storage' } });
  assert.equal(config.read_timeout, 1000);
  assert.equal(config.storage.chunk_size, 8192);
  assert.equal(load({ file: { path: 'ron.toml', text, table: 'edge' } }).read_timeout, 5000);
  const loose = problemsOf({ file: { path: 'ron.toml', text: 'read_timeout = "1s"', table: 'storage' } });
  assert.equal(loose[0]?.expected, 'one table per service');
});

test('keys that reach for prototypes are refused and reach nothing', () => {
  const texts = [
    '__proto__ = 1',
    '__proto__.polluted = true',
    '[__proto__]\npolluted = true',
    '[constructor.prototype]\npolluted = true',
    'server.__proto__.polluted = true',
    '[server.constructor]\npolluted = true',
    '["__proto__"."x"]\npolluted = true',
    'toString = 1',
  ];
  for (const text of texts) assert.ok(problemsOf(toml(text)).length > 0, text);
  assert.ok(problemsOf({ flags: ['--__proto__=1', '--__proto__.polluted=1', '--constructor=1'] }).length === 3);
  assert.ok(problemsOf({ env: { RON_STORAGE___PROTO__: '1' } }).length === 1);
  assert.equal(Object.getOwnPropertyDescriptor(Object.prototype, 'polluted'), undefined);
  assert.equal(configValue(load(), '__proto__.constructor'), undefined);
});

const anyConfig = fc.record({
  'server.max_inflight': fc.integer({ min: 1, max: 65_536 }),
  read_timeout: fc.integer({ min: 1, max: 600_000 }),
  'storage.chunk_size': fc.integer({ min: 4096, max: 1024 ** 2 }),
  'durability.repair_pacing': fc.integer({ min: 0, max: 1024 ** 4 }),
  'breaker.trip_threshold': fc.double({ min: 0, max: 1, noNaN: true }).map((ratio) => Math.round(ratio * 1e6) / 1e6),
  'amnesia.enabled': fc.boolean(),
  data_dirs: fc.array(
    fc.string({ unit: 'grapheme', maxLength: 20 }).filter((item) => /^[^\p{C}]*$/u.test(item)),
    {
      maxLength: 3,
    },
  ),
});

test('a config written as TOML loads to the same config', () => {
  fc.assert(
    fc.property(anyConfig, (values) => {
      const text = Object.entries(values)
        .map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
        .join('\n');
      const config = load(toml(text));
      for (const [name, value] of Object.entries(values)) assert.deepEqual(configValue(config, name), value);
      assert.deepEqual(load(toml(renderConfigToml(schema, config))), config);
    }),
  );
});

test('no file, variable or flag makes it crash: it loads or lists problems', () => {
  const keyLike = fc.constantFrom(
    'server',
    'max_inflight',
    'read_timeout',
    'data_dirs',
    '__proto__',
    'constructor',
    'x',
  );
  const valueLike = fc.oneof(
    fc.constantFrom('1', '"x"', '[', '{}', '[[1]]', 'true', '1e999', 'inf', '-0', '0x10', "'''", '1979-05-27'),
    fc.string(),
  );
  const line = fc.oneof(
    fc.tuple(keyLike, keyLike, valueLike).map(([left, right, value]) => `${left}.${right} = ${value}`),
    fc.tuple(keyLike, valueLike).map(([left, value]) => `${left} = ${value}`),
    fc.tuple(keyLike, keyLike).map(([left, right]) => `[${left}.${right}]`),
    keyLike.map((name) => `[[${name}]]`),
    fc.string({ unit: 'binary' }),
  );
  const env = fc.dictionary(
    fc.oneof(fc.constantFrom('READ_TIMEOUT', 'SERVER_MAX_INFLIGHT', '_PROTO__', ''), fc.string()),
    fc.string({ unit: 'binary' }),
  );
  fc.assert(
    fc.property(
      fc.array(line),
      env,
      fc.array(
        fc.oneof(
          fc.string(),
          line.map((flag) => `--${flag}`),
        ),
      ),
      (lines, vars, flags) => {
        const variables = Object.fromEntries(
          Object.entries(vars).map(([name, value]) => [`RON_STORAGE_${name}`, value]),
        );
        const before = Object.getOwnPropertyNames(Object.prototype).length;
        try {
          const config = load({ ...toml(lines.join('\n')), env: variables, flags });
          assert.ok(config.server.max_inflight >= 1);
        } catch (error) {
          assert.ok(error instanceof ConfigError, String(error));
          assert.ok(error.problems.length > 0);
          // oxlint-disable-next-line no-control-regex -- nothing may reach the terminal that moves its cursor
          assert.doesNotMatch(error.message, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
        }
        assert.equal(Object.getOwnPropertyNames(Object.prototype).length, before);
      },
    ),
    { numRuns: 500 },
  );
});

test('a table that contradicts itself is refused where it is declared', () => {
  const one = key.integer({ default: 1, doc: 'x' });
  assert.throws(() => defineConfig({ a: one, 'a.b': one }), /also a table/);
  assert.throws(() => defineConfig({ 'a.b': one, a_b: one }), /share a variable/);
  assert.throws(() => defineConfig({ __proto__x: one }), /lower case/);
  assert.throws(() => key.integer({ default: 0, min: 1, doc: 'x' }), /the default is not an integer from 1/);
  assert.throws(() => key.duration({ default: 'soon', doc: 'x' }), /not a duration/);
});

test('the docs table names every key with default, bounds, variable and whether it reloads', () => {
  const docs = renderConfigDocs(schema, 'RON_STORAGE_');
  const row = docs.split('\n').find((line) => line.includes('`read_timeout`'));
  assert.equal(
    row,
    '| `read_timeout` | `"5s"` | a duration from 1ms to 10m | yes | `RON_STORAGE_READ_TIMEOUT` | For one read. |',
  );
  for (const name of Object.keys(schema.keys)) assert.ok(docs.includes(`| \`${name}\` |`), name);
});
