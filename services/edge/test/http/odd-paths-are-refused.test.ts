/** Path tricks, odd hosts, queries and huge numbers are refused clearly, with the fast path and without, and nothing is fetched. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { RawClient } from '@ron/testkit/service';
import { startService, type TestEdge } from '../support.ts';

let services: readonly TestEdge[] = [];
before(async () => {
  const flags = ['--edge.mode=live', '--fill.allow=https://tiles.example.org', '--ingress.rps_limit=100000'];
  services = [await startService({ flags }), await startService({ flags: [...flags, '--edge.fast_path=false'] })];
});
after(async () => {
  for (const service of services) await service[Symbol.asyncDispose]();
});

const ADDRESS = `b3:${'a'.repeat(64)}`;

const CASES: Readonly<Record<number, readonly string[]>> = {
  400: [
    'live/tiles.example.org/../a',
    'live/tiles.example.org/./a',
    'live/tiles.example.org/%2e%2e/a',
    'live/tiles.example.org/.%2E/a',
    'live/tiles.example.org/..;/a',
    'live/tiles.example.org//a',
    'live/tiles.example.org/a%2fb',
    'live/tiles.example.org/a%5cb',
    'live/tiles.example.org/a\\b',
    'live/tiles.example.org/%252e%252e/a',
    'live/tiles.example.org/%00',
    'live/tiles.example.org/%0d%0aX: y',
    'live/tiles.example.org/%zz',
    'live/tiles.example.org/%c0%ae',
    'live/tiles.example.org/%ff',
    'live/tiles.example.org/a?secret=1',
    'live/tiles.example.org/a?x=1&x=2',
    'live/user@tiles.example.org/a',
    'live/user:pass@tiles.example.org/a',
    'live/tiles.example.org:0/a',
    'live/tiles.example.org:65536/a',
    'live/tiles.example.org:08443/a',
    'live/tiles.example.org:/a',
    'live/tiles.example.org:443:443/a',
    'live/tiles.example.org./a',
    'live/.tiles.example.org/a',
    'live/tiles..example.org/a',
    'live/2130706433/a',
    'live/0x7f000001/a',
    'live/0177.0.0.1/a',
    'live/127.1/a',
    'live/0x7f.1/a',
    'live/%E2%91%A0.example/a',
    'live/t%C4%B1les.example.org/a',
    'live/tiles%E3%80%82example.org/a',
    'live/[::1/a',
    'live/[::ffff:127.0.0.1]/a',
    'live/%20/a',
    `o/${ADDRESS.toUpperCase()}`,
    'o/b3:00',
    `o/${ADDRESS}?x=1`,
    `o/${ADDRESS}/x`,
    'pack/../../etc/passwd',
    'pack/%2e%2e/%2e%2e/etc/passwd',
    'pack/a%2fb.json',
    'pack/a/0/0/0.png?x=1',
  ],
  403: [
    'live/127.0.0.1/a',
    'live/localhost/a',
    'live/[::1]/a',
    'live/169.254.169.254/a',
    'live/tiles.example.org:8443/a',
    'live/TILES.example.org.evil.example/a',
  ],
  404: [
    '',
    'x',
    'pack/none/0/0/0.png',
    'pack/none/99999999999999999999/0/0.png',
    'pack/none/0/-1/0.png',
    'pack/none/0/1e9/0.png',
    'pack/none/0/0/0x0.png',
    'pack/none/00/0/0.png',
    'pack/none.pmtiles',
    'pack/none.json',
    'pack/%6eone.json%20',
    'PACK/none.json',
  ],
  414: [`live/tiles.example.org/${'a'.repeat(2000)}`, `pack/${'a'.repeat(9000)}.json`],
};

for (const [status, paths] of Object.entries(CASES)) {
  for (const path of paths) {
    test(`${status}: ${path.slice(0, 60)}`, async () => {
      for (const service of services) {
        const client = await RawClient.open(service.port);
        client.head('GET', `/edge/assets/${path}`, { Connection: 'close' });
        const text = await client.rest();
        assert.ok(text.startsWith(`HTTP/1.1 ${status} `), text.slice(0, 300));
        assert.ok(!text.includes('passwd'), 'the problem does not repeat the path');
      }
    });
  }
}

test('no such request made a connection to an origin', async () => {
  for (const service of services) {
    assert.equal(await service.metric('edge_fills_total{result="fetched"}'), 0);
    assert.equal(await service.metric('queue_depth{queue="work"}'), 0);
  }
});
