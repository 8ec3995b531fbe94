import assert from 'node:assert/strict';
import { test } from 'node:test';
import { validationError, type Fault } from './route-errors.ts';

const constant = (instancePath: string, allowedValue: unknown): Fault => ({
  instancePath,
  keyword: 'const',
  message: 'must be equal to constant',
  params: { allowedValue },
});

test('the allowed values of an enumeration are listed once', () => {
  const faults: Fault[] = [
    constant('/alg', 'ed25519'),
    constant('/alg', 'hybrid'),
    { instancePath: '/alg', keyword: 'anyOf', message: 'must match a schema in anyOf', params: {} },
    constant('/version', 1),
    { instancePath: '', keyword: 'additionalProperties', params: { additionalProperty: 'colour' } },
  ];
  const error = validationError('body', faults);
  assert.equal(error.message, 'body/alg must be "ed25519" or "hybrid"');
  assert.deepEqual(error.details?.['errors'], [
    { at: 'body/alg', message: 'must be "ed25519" or "hybrid"' },
    { at: 'body/version', message: 'must be 1' },
    { at: 'body', message: 'has an unknown field: colour' },
  ]);
});

test('an unknown field is named only if its name looks like a field, not like a secret', () => {
  const messageOf = (additionalProperty: string): string =>
    validationError('body', [{ keyword: 'additionalProperties', params: { additionalProperty } }]).message;
  for (const name of ['colour', 'max_deliveries', 'x'])
    assert.equal(messageOf(name), `body has an unknown field: ${name}`);
  for (const name of [
    '',
    'a secret of a webhook',
    'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    '8f742231b10e8888abcd99yyyzzz85a5',
    'correct_horse_battery_staple',
    'a\nb',
    '_',
  ])
    assert.equal(messageOf(name), 'body has an unknown field');
});

test('faults without details are reported too', () => {
  assert.equal(validationError('query', undefined).message, 'query is not valid');
  assert.equal(validationError('query', [{}]).message, 'query is not valid');
});
