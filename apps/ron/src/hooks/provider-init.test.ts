/** The flags of `ron hooks add` become the request that they describe; contradictions are usage errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Descriptor } from '@ron/proto';
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

const KNOWN: Descriptor = {
  name: 'ci',
  scheme: 'generic',
  topic: 'hooks.build',
  networks: ['192.0.2.0/24'],
  origins: ['https://ci.example'],
  limits: { rps: 5, inflight: 6 },
  generic: {
    template: '{timestamp}.{body}',
    signature_header: 'X-Sig',
    prefix: 'v1=',
    encoding: 'base64',
    algorithm: 'sha512',
    timestamp_header: 'X-Time',
  },
};

test('a known provider keeps each setting whose flag is absent', () => {
  const { name: _, ...kept } = KNOWN;
  assert.deepEqual(providerInit({}, KNOWN), kept);
  const changes: [Parameters<typeof providerInit>[0], object][] = [
    [{ topic: 'hooks.other' }, { topic: 'hooks.other' }],
    [{ network: ['::/0'] }, { networks: ['::/0'] }],
    [{ origin: ['https://b.example'] }, { origins: ['https://b.example'] }],
    [{ rps: '7' }, { limits: { rps: 7, inflight: 6 } }],
    [{ encoding: 'hex' }, { generic: { ...KNOWN.generic, encoding: 'hex' } }],
    [{ 'any-network': true }, { networks: [] }],
    [{ 'no-origins': true }, { origins: [] }],
  ];
  for (const [values, change] of changes)
    assert.deepEqual(providerInit(values, KNOWN), { ...kept, ...change }, JSON.stringify(values));
});

test('an empty value removes a setting of the scheme generic; another scheme drops them all', () => {
  const { timestamp_header: _, prefix: __, ...bare } = KNOWN.generic!;
  const plain = providerInit({ template: '{body}', prefix: '', 'timestamp-header': '' }, KNOWN);
  assert.deepEqual(plain.generic, { ...bare, template: '{body}' });
  assert.equal(providerInit({ scheme: 'github' }, KNOWN).generic, undefined);
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
    [{ scheme: 'github', network: ['::/0'], 'any-network': true }, /Specify --network or --any-network, not both/],
    [{ scheme: 'github', origin: ['https://a.example'], 'no-origins': true }, /--origin or --no-origins, not both/],
    [{ scheme: 'github', template: '{body}' }, /--template is only for the scheme generic/],
    [{ scheme: 'generic' }, /--signature-header is required/],
    [{ scheme: 'generic', 'signature-header': 'x', encoding: 'hax' }, /--encoding must be one of hex, base64/],
    [{ scheme: 'generic', 'signature-header': 'x', algorithm: 'md5' }, /--algorithm must be one of sha256, sha512/],
  ];
  for (const [values, message] of cases)
    assert.throws(() => providerInit(values), isUsage(message), JSON.stringify(values));
});
