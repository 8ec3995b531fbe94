/**
 * Clients that stop reading keep their connection until their credit is used up, and count for their address, but hold
 * no in-flight permit. When many resume at once, the permits in use stay within the limit.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, KIB, MIB } from '@ron/testkit';
import { Target, raw } from './target.ts';
import type { Wire } from './target.ts';

const PLACES = 4;
const SHARE = 2;
const ATTACKERS = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];

for (const [route, note_bytes] of [
  ['the pipeline', 32 * MIB],
  ['the fast path', 8 * MIB],
] as const) {
  test(`stalled readers of ${route} do not block others, and get the whole answer when they resume`, async () => {
    await using target = await Target.start(
      '--write_timeout=500ms',
      '--notes.ram_bytes=9MiB',
      '--server.rate_min=1KiB/s',
      `--server.max_inflight=${PLACES}`,
      `--server.inflight_per_ip=${SHARE}`,
      '--server.inflight_reserve=0',
    );
    await target.put('note', Buffer.alloc(note_bytes, 'note'));
    await target.put('other', Buffer.alloc(KIB, 'other'));
    const inflight = (): Promise<number> => target.metric('http_requests_inflight');
    const request = raw('GET /notes/note HTTP/1.1', ['Host: localhost', 'Connection: close']);
    const wires: Wire[] = [];
    for (const address of ATTACKERS) {
      for (let n = 0; n < SHARE; n += 1) {
        const wire = await target.open(address);
        wire.socket.pause();
        wire.write(request);
        wires.push(wire);
      }
      await eventually('they release their permits', async () => (await inflight()) === 0);
      const above = await target.open(address);
      above.write(request);
      await above.rest();
      assert.match(above.received, /"address_limit"/);
    }
    assert.equal((await target.send('GET', '/notes/other')).status, 200);
    for (const wire of wires) wire.socket.resume();
    const all = Promise.all(wires.map((wire) => wire.rest(60_000)));
    let most = 0;
    await eventually(
      'all have read on',
      async () => {
        most = Math.max(most, await inflight());
        return wires.every((wire) => wire.closed);
      },
      60_000,
    );
    assert.ok(most <= PLACES, `${most} requests held ${PLACES} places`);
    for (const text of await all) assert.ok(text.length > note_bytes);
    await eventually('all permits are free', async () => (await inflight()) === 0);
    assert.equal((await target.send('GET', '/notes/other')).status, 200);
  });
}
