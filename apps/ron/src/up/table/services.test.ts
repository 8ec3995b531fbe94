import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
import { SERVICES } from '@ron/proto';
import { checkTable, drainRounds } from './call-graph.ts';
import { SERVICE_TABLE } from './services.ts';

test('the table is valid: callees have rows, and callers have the configuration keys for their files', async () => {
  checkTable(SERVICE_TABLE);
  const names = SERVICE_TABLE.map(({ name }) => name);
  for (const { name, calls, schema, threads = [] } of SERVICE_TABLE) {
    assert.ok(SERVICES.includes(name));
    for (const module of threads) await access(module);
    const { keys } = await schema();
    for (const { to, scopes, config } of calls) {
      assert.ok(names.includes(to), `${name} calls ${to}`);
      assert.ok(config?.url !== undefined && config.url in keys, `${name}: the URL of ${to}`);
      if (scopes.length > 0) assert.ok(config.capability_file !== undefined && config.capability_file in keys);
    }
  }
  assert.equal(SERVICE_TABLE.filter((entry) => entry.derives_keys === true).length, 1);
  assert.equal(SERVICE_TABLE.filter((entry) => entry.knows_revocations === true).length, 1);
  assert.deepEqual(drainRounds(SERVICE_TABLE), [
    ['edge', 'interop'],
    ['storage', 'index', 'mailbox'],
    ['passport'],
    ['kms'],
  ]);
});
