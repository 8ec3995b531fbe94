/** Exit codes of errors of services. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RonError } from '@ron/kernel/core';
import { exitOf } from './exits.ts';

test('a state of kms that an operator has to resolve is not reported as a defect of ron', () => {
  for (const code of ['not_ready', 'audit_integrity', 'degraded_audit'] as const)
    assert.equal(exitOf(new RonError(code, 'x')), 'unavailable', code);
  assert.equal(exitOf(new RonError('storage_full', 'x')), 'temporary');
});
