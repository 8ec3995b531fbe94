/** The table of providers: requests see whole changes, built from the state of the two cells. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { Cell } from '@ron/kernel';
import { newPolicyMeta } from '../policy-meta.ts';
import { requireDescriptor } from './descriptor.ts';
import { ProviderTable, type Routes, type Routing } from './provider-table.ts';

const secret = (version: number) => ({
  version,
  kind: 'hmac' as const,
  key: createSecretKey(Buffer.alloc(32, version)),
  ends_ms: Infinity,
});
const routing = (version: number): Routing => ({ incarnation: 1, secrets: [secret(version)], problem: undefined });
const descriptor = (name: string, topic: string) => requireDescriptor(name, { scheme: 'github', topic });

function make() {
  const policy = newPolicyMeta();
  const routes: Routes = new Map();
  const table = new ProviderTable(new Cell('policy_meta', 1, policy), new Cell('routing_table', 2, routes));
  return { policy, routes, table };
}

test('[interop I-1] [interop I-2] a request keeps the provider that it loaded, and a later one sees the whole change', () => {
  const { table } = make();
  table.set(descriptor('shop', 'hooks.a'), routing(1), [1]);
  const early = table.get('shop')!;
  table.set(descriptor('shop', 'hooks.b'), routing(2), [2]);
  const late = table.get('shop')!;
  assert.deepEqual([early.descriptor.topic, early.secrets[0]!.version], ['hooks.a', 1]);
  assert.deepEqual([late.descriptor.topic, late.secrets[0]!.version], ['hooks.b', 2]);
  table.delete('shop');
  assert.equal(table.get('shop'), undefined);
  assert.equal(late.secrets[0]!.version, 2);
});

test('[interop I-2] the snapshot is built from the state of the cells, not from earlier calls', () => {
  const { policy, routes, table } = make();
  table.set(descriptor('shop', 'hooks.shop'), routing(1), [1]);
  assert.deepEqual([[...policy.descriptors.keys()], [...routes.keys()]], [['shop'], ['shop']]);
  policy.descriptors.set('shop', descriptor('shop', 'hooks.moved'));
  table.set(descriptor('other', 'hooks.other'), routing(1), [1]);
  assert.equal(table.get('shop')!.descriptor.topic, 'hooks.moved');
});

test('a change of one provider leaves the others as they are, with their counted uses', () => {
  const { table } = make();
  table.set(descriptor('shop', 'hooks.shop'), routing(1), [1]);
  const shop = table.get('shop')!;
  table.set(descriptor('other', 'hooks.other'), routing(1), [1]);
  assert.equal(table.get('shop'), shop);
  shop.countUse(1);
  table.set(descriptor('shop', 'hooks.moved'), routing(2), [2, 1]);
  assert.equal(table.useOf('shop', 1).uses, 1);
  table.set(descriptor('shop', 'hooks.moved'), routing(2), [2]);
  assert.equal(table.useOf('shop', 1).uses, 0);
});
