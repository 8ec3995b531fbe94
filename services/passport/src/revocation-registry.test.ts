import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, NEVER, realSched, Watch } from '@ron/kernel';
import { memoryStore, RevocationRegistry, type RevocationStore } from './revocation-registry.ts';

function registryOf(store: RevocationStore): RevocationRegistry {
  return new RevocationRegistry(store, new Watch('revocations', store.state.document));
}

test('a clock that is set back lowers no stored floor: of all, and of a subject', async (t) => {
  const before = installSched(realSched);
  t.after(() => installSched(before));
  for (const target of ['all', { subject: 'alice' }] as const) {
    installSched(realSched);
    const store = memoryStore();
    const first = await registryOf(store).revoke(target, NEVER);
    installSched({ ...realSched, wall_ms: () => realSched.wall_ms() - 3_600_000 });
    const second = await registryOf(store).revoke(target, NEVER);
    assert.ok(second > first, JSON.stringify(target));
    const { all, subjects } = store.state.document;
    assert.equal(target === 'all' ? all : Object.values(subjects)[0], second);
  }
});

test('after a rollback the version rises above the newest that was ever stored', async () => {
  const version_seen = realSched.wall_ms() + 3_600_000;
  const store = Object.assign(memoryStore(), { version_seen });
  const registry = registryOf(store);
  assert.match(registry.problem ?? '', /rolled back/);
  await registry.revoke('all', NEVER);
  assert.ok(store.state.document.version > version_seen);
});
