/** Exit codes of errors of services. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERRORS, RonError, type ErrorCode } from '@ron/kernel/core';
import { exitOf } from './exits.ts';

test('a state of kms that an operator has to resolve is not reported as a defect of ron', () => {
  for (const code of ['not_ready', 'audit_integrity', 'degraded_audit'] as const)
    assert.equal(exitOf(new RonError(code, 'x')), 'unavailable', code);
  assert.equal(exitOf(new RonError('storage_full', 'x')), 'temporary');
});

test('a refusal by a service is not reported as a defect of ron', () => {
  const refusals = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => {
    const { status } = ERRORS[code];
    return (status >= 400 && status < 500) || status === 502 || status === 504;
  });
  for (const code of refusals) assert.notEqual(exitOf(new RonError(code, 'x')), 'internal', code);
  assert.equal(exitOf(new RonError('reject_policy', 'x')), 'failed');
});
