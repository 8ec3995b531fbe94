/** A capability that restricts the body is refused on routes that forward bodies, because the proxy does not check them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { route } from '@ron/ingress';
import type { AccessCheck } from '@ron/proto';
import { send } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const phase2 = {
  needsBody: true,
  update: () => undefined,
  end: () => undefined,
  facts: () => undefined,
  settle: () => undefined,
};
const access: AccessCheck = {
  checkHeaders: () => ({ ok: true, capability_id: 'c', chain: [], subject: 's', scopes: [], caveats: [], phase2 }),
};
const gzipped = gzipSync('x');

for (const [name, init] of Object.entries({
  plain: { body: 'x', headers: { 'content-length': '1' } },
  chunked: { body: 'x', headers: { 'transfer-encoding': 'chunked' } },
  gzip: { body: gzipped, headers: { 'content-encoding': 'gzip', 'content-length': String(gzipped.length) } },
  empty: { body: '', headers: { 'content-length': '0' } },
  none: {},
})) {
  test(`a body that is ${name} is not forwarded under a body caveat`, async () => {
    let calls = 0;
    const row = route({
      scope: 'x:put',
      lane: 'inline',
      body: 'forward',
      summary: 'For a test.',
      method: 'PUT',
      path: '/a',
      handler: () => {
        calls++;
        return { kind: 'empty', status: 204 };
      },
    });
    await using x = await startIngress({ routes: [row], access });
    assert.equal((await send(x.url, 'PUT', '/a', init)).problem?.code, 'forbidden');
    assert.equal(calls, 0);
  });
}
