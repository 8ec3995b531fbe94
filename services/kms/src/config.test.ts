import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, loadConfig } from '@ron/config';
import { schema } from './config.ts';

const problemsOf = (...flags: string[]): string[] => {
  try {
    loadConfig({ schema, flags: ['--data_dir=/d', ...flags], env: {}, env_prefix: 'RON_KMS_' });
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map(({ key, expected }) => `${key}: ${expected}`);
  }
};

test('the endpoint of the cloud needs TLS unless it is on loopback; egress.networks does not change that', () => {
  const cloud = ['--kms.backend=cloud', '--cloud.region=eu-north-1', '--egress.networks=10.0.0.0/8'];
  for (const endpoint of ['https://kms.example', 'http://127.0.0.1:4566', 'http://localhost:4566'])
    assert.deepEqual(problemsOf(...cloud, `--cloud.endpoint=${endpoint}`), []);
  assert.deepEqual(problemsOf(...cloud, '--cloud.endpoint=http://10.0.0.1'), [
    'cloud.endpoint: an https URL, because credentials and data keys are sent to it',
  ]);
});
