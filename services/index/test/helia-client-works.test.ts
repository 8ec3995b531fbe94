import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { delegatedRoutingV1HttpApiClient } from '@helia/delegated-routing-v1-http-api-client';
import { addressToCid, formatAddress, type Address } from '@ron/proto';
import { CID } from 'multiformats/cid';
import { AMNESIA, startService, type TestIndex } from './support.ts';

const STORAGE = 'http://127.0.0.1:7101';
const addressOf = (text: string): Address => formatAddress(createHash('sha256').update(text).digest());

async function providersOf(service: TestIndex, cid: string) {
  const logger = {
    forComponent: () => Object.assign(() => undefined, { error: () => undefined, trace: () => undefined }),
  };
  const create = delegatedRoutingV1HttpApiClient({ url: new URL(service.url), cacheTTL: 0 });
  const client = create({ logger } as never);
  const found = [];
  for await (const provider of client.getProviders(CID.parse(cid))) found.push(provider);
  return found;
}

test('the client of Helia finds this node as a provider, and nothing for an unknown object', async () => {
  await using service = await startService({ flags: [...AMNESIA, `--index.storage_url=${STORAGE}`] });
  const address = addressOf('object');
  const announced = await service.call('POST', '/announce', {
    entries: [{ address, size: 5, media_type: 'text/plain' }],
  });
  assert.equal(announced.status, 200, announced.text);
  const [provider, ...others] = await providersOf(service, addressToCid(address));
  assert.ok(provider !== undefined && others.length === 0);
  assert.deepEqual(provider.Addrs.map(String), ['/ip4/127.0.0.1/tcp/7101/http']);
  assert.deepEqual(await providersOf(service, addressToCid(addressOf('unknown'))), []);
  await assert.rejects(providersOf(service, 'bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy'), {
    name: 'InvalidRequestError',
  });
  const json = await service.send('GET', `/routing/v1/providers/${addressToCid(address)}`);
  assert.equal(json.json.Providers[0].ID, service.index.node_key.peer_id);
});
