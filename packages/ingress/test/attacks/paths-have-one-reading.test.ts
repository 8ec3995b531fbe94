/** Targets that a proxy and the listener could read differently are refused, on every route and even if the bytes are in RAM. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { KIB } from '@ron/testkit';
import { Target, raw, withstands } from './target.ts';

let target: Target;

before(async () => {
  target = await Target.start();
  await target.put('secret', 'the secret note');
});
after(() => target[Symbol.asyncDispose]());

const TRICKS = [
  '/notes/../notes/secret',
  '/x/../notes/secret',
  '/./notes/secret',
  '/notes/./secret',
  '/notes/secret/.',
  '/notes/secret/..',
  '/%2e%2e/notes/secret',
  '/x/%2e%2e/notes/secret',
  '/x/.%2e/notes/secret',
  '/x/%2E./notes/secret',
  '/x%2f..%2fnotes%2fsecret',
  '/notes%2fsecret',
  '/notes%2Fsecret',
  '//notes/secret',
  '/notes//secret',
  '///notes/secret',
  '/\\notes/secret',
  '/notes\\secret',
  '/notes%5csecret',
  '/notes/secret%00',
  '/notes/secret%00.html',
  '/notes/%00secret',
  '/notes/secret%0d%0aX: y',
  '/notes/secret%0a',
  '/notes/%c0%ae%c0%ae/secret',
  '/x/..%c0%afnotes/secret',
  '/x/%e0%80%ae%e0%80%ae/notes/secret',
  '/x/%252e%252e/notes/secret',
  '/x/..;/notes/secret',
  '/x/..;a=b/notes/secret',
  '/notes/secret%',
  '/notes/secret%2',
  '/notes/secret%zz',
  '/notes/secret#x',
  '/notes/secr\u00e9t',
  '/notes/secret\u007f',
  '/notes/secret\u0001',
  'notes/secret',
  '*',
  'http://localhost/notes/../notes/secret',
  'http://localhost//notes/secret',
  'http://localhost/notes%2fsecret',
  'http:///notes/secret',
  'http:/notes/secret',
  'http:notes/secret',
  'https://localhost/notes/secret',
  'ftp://localhost/notes/secret',
  '*/notes/secret',
  '**',
  'localhost:80',
  'file:///notes/secret',
  '?/notes/secret',
  '#/notes/secret',
];

test('every trick is refused as bad_path or by the parser, and none reads the note', async () => {
  await withstands(
    target,
    async () => {
      for (const path of TRICKS) {
        for (const method of ['GET', 'HEAD', 'PUT']) {
          const wire = await target.open();
          wire.write(raw(`${method} ${path} HTTP/1.1`, ['Host: localhost', 'Connection: close']));
          await wire.rest();
          assert.deepEqual(wire.statuses, [400], `${method} ${JSON.stringify(path)}: ${wire.received.slice(0, 200)}`);
          if (method !== 'HEAD') assert.match(wire.received, /"code":"bad_(?:path|request)"/);
          assert.doesNotMatch(wire.received, /the secret note/);
        }
      }
    },
    { counters: ['rejected_total{reason="bad_path"}'] },
  );
});

test('the literal path, and harmless encodings of it, still work', async () => {
  for (const path of ['/notes/secret', '/notes/%73ecret', '/notes/secret?x=%2F..%2f//']) {
    const reply = await target.send('GET', path);
    assert.equal(reply.text, 'the secret note', path);
  }
});

test('a target that is too long is 414', async () => {
  await withstands(
    target,
    async () => {
      const reply = await target.send('GET', `/${'a'.repeat(9 * KIB)}`);
      assert.equal(reply.status, 414);
      assert.equal(reply.problem?.code, 'uri_too_long');
    },
    { counters: ['rejected_total{reason="uri_too_long"}'] },
  );
});

test('a foreign Host is refused, because another name may resolve to this machine', async () => {
  await withstands(
    target,
    async () => {
      for (const host of [
        'evil.example',
        'localhost.evil.example',
        '127.0.0.1.nip.io',
        '127.0.0.1:99999',
        'user@localhost',
        '',
        '[::1',
        'localhost,evil',
      ]) {
        const wire = await target.open();
        wire.write(raw('GET /notes/secret HTTP/1.1', [`Host: ${host}`, 'Connection: close']));
        await wire.rest();
        assert.deepEqual(wire.statuses, [421], `${host}: ${wire.received.slice(0, 100)}`);
        assert.doesNotMatch(wire.received, /the secret note/);
      }
    },
    { counters: ['rejected_total{reason="bad_host"}'] },
  );
});
