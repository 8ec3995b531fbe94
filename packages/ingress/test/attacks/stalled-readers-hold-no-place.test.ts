/** Clients that stop reading keep their connection until their credit is used up, but no in-flight place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '../support.ts';
import { KIB, MIB, Target, raw } from './target.ts';

const PLACES = 4;
const LARGE_BYTES = 32 * MIB;

for (const [route, note_bytes] of [
  ['the pipeline', LARGE_BYTES],
  ['the fast path', 8 * MIB],
] as const) {
  test(`as many stalled readers of ${route} as places are left leave room for others`, async () => {
    await using target = await Target.start(
      '--write_timeout=500ms',
      '--notes.ram_bytes=9MiB',
      '--server.rate_min=1KiB/s',
      `--server.max_inflight=${PLACES}`,
      '--server.inflight_per_ip=4',
      '--server.inflight_reserve=0',
    );
    await target.put('note', Buffer.alloc(note_bytes, 'note'));
    await target.put('other', Buffer.alloc(KIB, 'other'));
    const wires = await Promise.all(Array.from({ length: PLACES }, () => target.open()));
    for (const wire of wires) {
      wire.socket.pause();
      wire.write(raw('GET /notes/note HTTP/1.1', ['Host: localhost', 'Connection: close']));
    }
    await eventually('a place is free again', async () => (await target.send('GET', '/notes/other')).status === 200);
    await eventually('all have stalled', async () => (await target.metric('http_requests_inflight')) === 0);
    // Nothing was cut: once they read on, they get the whole answer, and the places come back.
    for (const wire of wires) {
      wire.socket.resume();
      assert.ok((await wire.rest(60_000)).length > note_bytes);
    }
    await eventually('all places are free', async () => (await target.metric('http_requests_inflight')) === 0);
    assert.equal((await target.send('GET', '/notes/other')).status, 200);
  });
}
