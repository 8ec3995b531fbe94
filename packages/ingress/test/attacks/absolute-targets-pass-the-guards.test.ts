/**
 * A target in absolute form (RFC 9112, section 3.2.2) gets the same answer as its origin form, by the same guards,
 * lookups in RAM and routes. Its authority replaces the Host header and is checked instead.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Target, raw } from './target.ts';

interface Answer {
  readonly status: number;
  readonly text: string;
}

async function answerOf(target: Target, line: string, headers: readonly string[]): Promise<Answer> {
  const wire = await target.open();
  wire.write(raw(`${line} HTTP/1.1`, [...headers, 'Connection: close']));
  await wire.rest();
  assert.equal(wire.statuses.length, 1, wire.received);
  return { status: wire.statuses[0]!, text: wire.received };
}

for (const [name, flag] of [
  ['with the fast path', '--notes.ram_bytes=1MiB'],
  ['without it', '--notes.ram_bytes=0B'],
] as const) {
  describe(name, () => {
    let target: Target;
    before(async () => {
      target = await Target.start(flag);
      await target.put('secret', 'the secret note');
    });
    after(() => target[Symbol.asyncDispose]());

    const answer = (line: string, ...headers: string[]): Promise<Answer> => answerOf(target, line, headers);

    test('a known authority is served, with any Host header', async () => {
      for (const authority of ['localhost', 'LOCALHOST:1', '127.0.0.1', `[::1]:${target.port}`]) {
        for (const host of ['localhost', 'evil.example']) {
          const { status, text } = await answer(`GET http://${authority}/notes/secret`, `Host: ${host}`);
          assert.equal(status, 200, text);
          assert.match(text, /the secret note$/);
        }
      }
      assert.equal((await answer('GET HTTP://localhost/greeting?', 'Host: localhost')).status, 200);
    });

    test('a foreign authority is refused, with any Host header', async () => {
      for (const authority of ['evil.example', 'localhost.evil.example', 'user@localhost', 'localhost:99999', '[::1']) {
        const { status, text } = await answer(`GET http://${authority}/notes/secret`, 'Host: localhost');
        // The parser refuses some of them.
        assert.ok(status === 421 || status === 400, text);
        assert.doesNotMatch(text, /the secret note/);
      }
    });

    test('exactly one Host header is still required', async () => {
      assert.equal((await answer('GET http://localhost/greeting')).status, 400);
      assert.equal((await answer('GET http://localhost/greeting', 'Host: localhost', 'Host: localhost')).status, 400);
    });

    test('health routes and unknown paths are found by the path alone', async () => {
      assert.equal((await answer('GET http://localhost/healthz', 'Host: localhost')).status, 200);
      assert.equal((await answer('GET http://localhost/nothing', 'Host: localhost')).status, 404);
      assert.equal((await answer('GET http://localhost', 'Host: localhost')).status, 404);
    });

    test('a proxied request is answered like its origin form on the same connection', async () => {
      const wire = await target.open();
      const lines = ['Host: localhost', 'X-Corr-ID: same'];
      for (const form of ['/notes/secret', 'http://localhost/notes/secret'])
        wire.write(raw(`GET ${form} HTTP/1.1`, lines));
      wire.write(raw('GET /healthz HTTP/1.1', ['Host: localhost', 'Connection: close']));
      await wire.rest();
      const answers = wire.received.split('the secret note');
      assert.equal(answers.length, 3, wire.received);
      // The order of the headers depends on the writer.
      const lines_of = (text: string): string[] => text.split('\r\n').filter((line) => !line.startsWith('Date:'));
      assert.deepEqual(lines_of(answers[1]!).toSorted(), lines_of(answers[0]!).toSorted());
    });
  });
}
