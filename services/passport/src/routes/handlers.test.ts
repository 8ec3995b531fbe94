import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { IssueEntry } from '@ron/proto';
import { issue } from './handlers.ts';

/** As in kms: an op_id does not begin with `-` or `_`, an id of a capability may. */
const OP_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

test('kms accepts the op_id of the entry of each issued capability', async () => {
  for (const first of ['A', '9', '-', '_']) {
    const entries: IssueEntry[] = [];
    const capability_id = first.padEnd(22, 'x');
    const init = {
      issuer: { issue: () => Promise.resolve({ token: 't', capability_id, subject: 'alice', expires_ms: 1 }) },
      recordIssue: async (entry: IssueEntry) => void entries.push(entry),
      count: { issued: () => undefined },
      log: { info: () => undefined },
    } as unknown as Parameters<typeof issue>[0];
    const context = {
      body: { audience: 'storage', scopes: ['storage:get'] },
      grant: { capability_id: 'b'.repeat(22), subject: 'root', chain: [] },
      deadline: { signal: NEVER },
      actsOn: () => undefined,
    } as unknown as Parameters<typeof issue>[1];
    await issue(init, context);
    assert.match(entries[0]!.op_id, OP_ID, first);
    assert.equal(entries[0]!.capability_id, capability_id);
  }
});
