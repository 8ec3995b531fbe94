/** The flags of `ron hooks add` become the request that they describe; contradictions are usage errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CliError } from '../exits.ts';
import { providerInit } from './provider-init.ts';

const isUsage =
  (message: RegExp) =>
  (error: unknown): boolean =>
    error instanceof CliError && error.exit === 'usage' && message.test(error.message);

test('only the flags that are given are sent: interop has the defaults', () => {
  assert.deepEqual(providerInit({ scheme: 'github' }), { scheme: 'github' });
  assert.deepEqual(
    providerInit({
      scheme: 'slack',
      topic: 'hooks.team',
      network: ['192.0.2.0/24', '2001:db8::/32'],
      origin: ['https://slack.example'],
      rps: '5',
      inflight: '6',
    }),
    {
      scheme: 'slack',
      topic: 'hooks.team',
      networks: ['192.0.2.0/24', '2001:db8::/32'],
      origins: ['https://slack.example'],
      limits: { rps: 5, inflight: 6 },
    },
  );
  assert.deepEqual(providerInit({ scheme: 'stripe', rps: '7' }).limits, { rps: 7 });
});

test('the scheme generic is described by its flags', () => {
  assert.deepEqual(providerInit({ scheme: 'generic', 'signature-header': 'X-Sig' }).generic, {
    template: '{body}',
    signature_header: 'X-Sig',
    encoding: 'hex',
    algorithm: 'sha256',
  });
  assert.deepEqual(
    providerInit({
      scheme: 'generic',
      template: '{id}:{timestamp}.{body}',
      'signature-header': 'X-Sig',
      prefix: 'v1=',
      encoding: 'base64',
      algorithm: 'sha512',
      'timestamp-header': 'X-Time',
      'id-header': 'X-Id',
    }).generic,
    {
      template: '{id}:{timestamp}.{body}',
      signature_header: 'X-Sig',
      prefix: 'v1=',
      encoding: 'base64',
      algorithm: 'sha512',
      timestamp_header: 'X-Time',
      id_header: 'X-Id',
    },
  );
});

test('a missing or unknown word, and a flag of another scheme, are refused with the reason', () => {
  const cases: [Parameters<typeof providerInit>[0], RegExp][] = [
    [{}, /--scheme must be one of github, slack, stripe, standard, generic/],
    [{ scheme: 'git' }, /--scheme must be one of/],
    [{ scheme: 'github', topic: 'orders' }, /the topic must begin with hooks\./],
    [{ scheme: 'github', topic: 'hooks.A' }, /cannot be the name of a topic/],
    [{ scheme: 'github', rps: '0' }, /--rps must be a number from 1/],
    [{ scheme: 'github', network: Array.from({ length: 65 }, () => '::/0') }, /--network: at most 64/],
    [{ scheme: 'github', template: '{body}' }, /--template is only for the scheme generic/],
    [{ scheme: 'generic' }, /--signature-header is required/],
    [{ scheme: 'generic', 'signature-header': 'x', encoding: 'hax' }, /--encoding must be one of hex, base64/],
    [{ scheme: 'generic', 'signature-header': 'x', algorithm: 'md5' }, /--algorithm must be one of sha256, sha512/],
  ];
  for (const [values, message] of cases)
    assert.throws(() => providerInit(values), isUsage(message), JSON.stringify(values));
});
