/** A provider that lies, from its claim in the DHT to the answers of `GET /resolve`: the real resolver, cache, prober and HTTP. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Mpsc } from '@ron/kernel';
import type { ResolveDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { Prober, type ProbeRequest } from '../../src/probe/prober.ts';
import { listen } from '../../src/resolve/testing/listen.ts';
import { dhtOf } from '../../src/resolve/testing/open-resolving.ts';
import { ProviderServer, sends } from './provider-server.ts';

const CONTENT = Uint8Array.from({ length: 200_000 }, (_, at) => at % 251);
/** The liar comes first in the order of ids. */
const [LIAR, HONEST] = ['12D3KooWAliar', '12D3KooWHonest'];

test('a provider that lies is never first beside a proven one, and is dropped after its probe', async () => {
  await using liar = await ProviderServer.start();
  await using honest = await ProviderServer.start();
  const address = honest.put(CONTENT);
  liar.put(CONTENT);
  liar.handler = sends((slice) => {
    slice[slice.length - 1]! ^= 1;
    return slice;
  });
  const claims = [
    { id: LIAR, url: liar.url, reporters: 5 },
    { id: HONEST, url: honest.url, reporters: 1 },
  ];
  const prober = new Prober({
    channel: new Mpsc<ProbeRequest>('probes', 256),
    probe_ms: 30_000,
    breakers: { state: (id) => node.breakers.state(id), admit: (id) => node.breakers.admit(id) },
    onChange: (changed) => node.resolving.invalidator.invalidate([changed]),
  });
  await using node = await listen({ dht: () => dhtOf({ providers: claims }), evidence: prober });
  const stopping = new AbortController();
  const running = prober.run({ signal: new AbortController().signal, stopping: stopping.signal });
  const resolve = async (query = ''): Promise<ResolveDto> => {
    const { status, text } = await send(node.url, 'GET', `/resolve/${address}${query}`);
    assert.equal(status, 200, text);
    return JSON.parse(text) as ResolveDto;
  };

  const first = await resolve();
  assert.deepEqual(
    first.providers.map(({ proof }) => proof),
    ['unproven', 'unproven'],
  );
  await eventually('the liar is dropped', async () => {
    const { providers } = await resolve();
    if (providers.some(({ proof }) => proof === 'proven')) assert.equal(providers[0]!.id, HONEST);
    return providers.every(({ id }) => id !== LIAR);
  });
  await eventually('the honest one is proven', async () => (await resolve()).providers[0]?.proof === 'proven');
  const { providers, manifest, receipt } = await resolve('?receipt=1');
  assert.deepEqual(
    providers.map(({ id, proof }) => [id, proof]),
    [[HONEST, 'proven']],
  );
  assert.ok(providers[0]!.latency_ms! > 0);
  assert.equal(manifest.size, CONTENT.length, 'from the proof');
  assert.deepEqual(
    receipt!.ranking.map(({ id, proof }) => [id, proof]),
    [
      [HONEST, 'proven'],
      [LIAR, 'failed'],
    ],
  );
  stopping.abort();
  await running;
});
