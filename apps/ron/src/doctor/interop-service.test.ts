/** The findings about interop. */
import assert from 'node:assert/strict';
import { chmod, mkdir } from 'node:fs/promises';
import { test } from 'node:test';
import type { BrownoutDto, SecretDto, WebhookProviderDto } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { homeAt } from '../home.ts';
import { brownoutFindings, checkInteropDirectory, metricFindings, providerFindings } from './interop-service.ts';
import type { Finding } from './finding.ts';

const NOW_MS = Date.UTC(2026, 10, 18);
const HOUR_MS = 3600 * 1000;

const secretOf = (version: number, more: Partial<SecretDto> = {}): SecretDto => ({
  version,
  kind: 'hmac',
  created_ms: NOW_MS - 24 * HOUR_MS,
  uses: 0,
  ...more,
});

const providerOf = (name: string, more: Partial<WebhookProviderDto> = {}): WebhookProviderDto => ({
  name,
  scheme: 'github',
  topic: `hooks.${name}`,
  networks: [],
  origins: [],
  limits: { rps: 100, inflight: 64 },
  secrets: [secretOf(1)],
  ...more,
});

const linesOf = (findings: readonly Finding[]): string[] => findings.map(({ level, what }) => `${level} ${what}`);

test('providers without a problem are one line', () => {
  assert.deepEqual(linesOf(providerFindings([], NOW_MS)), ['ok 0 providers of webhooks']);
  assert.deepEqual(linesOf(providerFindings([providerOf('a')], NOW_MS)), ['ok 1 provider of webhooks']);
});

test('a closed provider is a failure with the command that opens it', () => {
  const found = providerFindings([providerOf('a', { problem: 'its file is damaged' }), providerOf('b')], NOW_MS);
  assert.deepEqual(linesOf(found), ['ok 2 providers of webhooks', 'fail provider a is closed: its file is damaged']);
  assert.match(found[1]!.fix!, /`ron hooks add a`/);
});

test('a secret that is not loaded beside a loaded one is a warning', () => {
  const secrets = [secretOf(2), secretOf(1, { problem: 'it is not unwrapped yet' })];
  assert.deepEqual(linesOf(providerFindings([providerOf('a', { secrets })], NOW_MS)), [
    'ok 1 provider of webhooks',
    'warn secret v1 of a is not loaded, and deliveries signed with it are refused: it is not unwrapped yet',
  ]);
});

test('a secret that is used close to its end is found; one that is not used, has ended or has time left is not', () => {
  const used = { uses: 5, last_used_ms: NOW_MS - 60_000 };
  const cases: [Partial<SecretDto>, boolean][] = [
    [{ ...used, ends_ms: NOW_MS + 2 * HOUR_MS }, true],
    [{ ...used, ends_ms: NOW_MS + 6 * HOUR_MS }, true],
    [{ ...used, ends_ms: NOW_MS + 6 * HOUR_MS + 1 }, false],
    [{ ...used, ends_ms: NOW_MS }, false],
    [{ ...used, last_used_ms: NOW_MS - 2 * HOUR_MS, ends_ms: NOW_MS + HOUR_MS }, false],
    [{ ends_ms: NOW_MS + HOUR_MS }, false],
    [used, false],
  ];
  for (const [more, isFound] of cases) {
    const found = providerFindings([providerOf('a', { secrets: [secretOf(2), secretOf(1, more)] })], NOW_MS);
    assert.equal(found.length, isFound ? 2 : 1, JSON.stringify(more));
  }
  const [, finding] = providerFindings(
    [providerOf('a', { secrets: [secretOf(2), secretOf(1, { ...used, ends_ms: NOW_MS + 2 * HOUR_MS })] })],
    NOW_MS,
  );
  assert.equal(finding!.what, 'secret v1 of a ends in 2 h 0 min, and deliveries are still signed with it');
});

test('a brownout names its cause: the upstream, or the operator with the end and the reason', () => {
  const auto: BrownoutDto = { mode: 'auto', active: false, upstreams: [] };
  assert.deepEqual(brownoutFindings(auto), []);
  const upstream = { sheds: true, breaker: 'closed', error_rate_limit: 0.01, p95_limit_ms: 500 } as const;
  const upstreams = [
    { ...upstream, upstream: 'storage', active: true },
    { ...upstream, upstream: 'mailbox', active: false },
    { ...upstream, upstream: 'passport', active: true },
  ] as const;
  assert.deepEqual(linesOf(brownoutFindings({ ...auto, active: true, upstreams })), [
    'warn brownout because of storage and passport: the bridge sheds load',
  ]);
  for (const mode of ['on', 'off'] as const) {
    const manual = brownoutFindings({ ...auto, mode, active: mode === 'on', until_ms: NOW_MS, why: 'disks move' });
    assert.deepEqual(linesOf(manual), [
      `warn brownout is set to ${mode} by an operator until 2026-11-18T00:00:00.000Z: disks move`,
    ]);
    assert.match(manual[0]!.fix!, /`ron hooks brownout auto`/);
  }
});

test('webhooks in the spool, late signatures and lost audit events are found in the metrics', () => {
  assert.deepEqual(
    metricFindings('spool_deliveries 0\nspool_bytes 0\nreceipt_sign_lag_seconds 60\naudit_drop_total 0\n'),
    [],
  );
  const receipts = 'receipts_kept 7\nreceipts_kept_max 500000\n';
  const metrics = 'spool_deliveries 1\nspool_bytes 2048\nreceipt_sign_lag_seconds 61\naudit_drop_total 3\n';
  assert.deepEqual(linesOf(metricFindings(receipts + metrics)), [
    'ok 7 receipts kept, room for 500000 (`receipts.max_bytes`)',
    'warn 1 webhook, 2.0 KiB, waits in the spool for mailbox',
    'warn the oldest unsigned receipt has waited for 1 min 1 s',
    'warn 3 audit events of interop dropped since its start',
  ]);
});

test('a long list of problems is cut', () => {
  const providers = Array.from({ length: 25 }, (_, at) => providerOf(`p${at}`, { problem: 'x' }));
  const found = providerFindings(providers, NOW_MS);
  assert.deepEqual([found.length, found.at(-1)!.what], [22, '5 more problems of providers']);
});

test('the directory: nothing before the first start; a mode that lets other users read is found', async (t) => {
  const home = homeAt(tempDirFor(t));
  assert.deepEqual(await checkInteropDirectory(home), []);
  const dir = home.of('interop').data;
  await mkdir(dir, { recursive: true, mode: 0o700 });
  assert.deepEqual(await checkInteropDirectory(home), []);
  await chmod(dir, 0o750);
  assert.deepEqual(
    (await checkInteropDirectory(home)).map(({ fix }) => fix),
    [`chmod 700 ${dir}`],
  );
});
