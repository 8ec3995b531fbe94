import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IndexClient, KmsClient } from '@ron/client';
import { keyFor } from './name-keys.ts';
import type { NodeServices } from './node-services.ts';

test('the key that another first command has just created is used; no second one is created', async () => {
  const raw = Buffer.alloc(32, 7);
  const theirs = { kid: 'names/raw/ed25519/one/v1', state: 'enabled', public: { pubkey_b64: raw.toString('base64') } };
  let [lists, created] = [0, 0];
  const kms = {
    async *keys() {
      if (lists++ > 0) yield theirs;
    },
    createKey: async () => {
      created += 1;
      return { ...theirs, kid: 'names/raw/ed25519/two/v1' };
    },
  };
  const index = { trust: async () => [], setTrust: async () => undefined };
  const services: Pick<NodeServices, 'index' | 'kms' | 'kms_dir'> = {
    kms_dir: 'node/kms',
    kms: (work) => work(kms as unknown as KmsClient),
    index: (work) => work(index as unknown as IndexClient),
  };
  const key = await keyFor('docs', undefined, services as NodeServices, { note: () => undefined });
  assert.deepEqual([key.key, created], [raw.toString('hex'), 0]);
});
