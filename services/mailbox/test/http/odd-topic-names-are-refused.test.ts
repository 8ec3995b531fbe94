/** A topic has one spelling: no encoding, case, Unicode or path trick reaches another topic or another route. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { isTopic } from '@ron/proto';
import { RawClient } from '@ron/testkit/service';
import { AMNESIA, startService, type TestMailbox } from '../support.ts';

const ODD = [
  'send',
  '',
  '.',
  '..',
  '...',
  'a.',
  '.a',
  'a..b',
  'A',
  'Jobs',
  'a-b',
  'a b',
  'a/b',
  'a\\b',
  'ü',
  'ａ',
  'a\u0000',
  'a\n',
  'a;b',
  'a?b',
  'a#b',
  '%61',
  '*',
  ':topic',
  '__proto__ ',
  'x'.repeat(65),
];

suite('odd topic names', () => {
  let mailbox: TestMailbox;
  let authorization: string;
  before(async () => {
    mailbox = await startService({ flags: AMNESIA });
    ({ authorization } = await mailbox.allow());
  });
  after(() => mailbox[Symbol.asyncDispose]());

  /** Sends the path as it is: a client would normalize it. */
  async function raw(path: string, body = 'x'): Promise<number> {
    const client = await RawClient.open(mailbox.port);
    client.head('POST', path, { Authorization: authorization, 'Content-Length': body.length, Connection: 'close' });
    client.write(body);
    return Number(/^HTTP\/1\.1 (\d+)/.exec(await client.rest())?.[1]);
  }
  const topics = async (): Promise<string[]> =>
    (await mailbox.call('GET', '/v1/mailbox')).json.topics.map(({ topic }: { topic: string }) => topic);

  test('no odd name is a topic, in a path or in a batch', async () => {
    for (const name of ODD) {
      assert.equal(isTopic(name), false, JSON.stringify(name));
      const inBatch = await mailbox.call('POST', '/v1/mailbox/send', { messages: [{ topic: name, payload: '' }] });
      assert.equal(inBatch.status, 400, JSON.stringify(name));
      for (const suffix of ['', '/receive', '/ack']) {
        const status = await raw(`/v1/mailbox/${encodeURIComponent(name)}${suffix}`);
        assert.ok(status >= 400 && status < 500, `${JSON.stringify(name)}${suffix}: ${status}`);
      }
    }
    assert.deepEqual(await topics(), []);
  });

  test('paths that a lax server would normalize reach no topic', async () => {
    for (const path of [
      '/v1/mailbox/../mailbox/jobs',
      '/v1/mailbox/./jobs',
      '/v1/mailbox//jobs',
      '/v1/mailbox/jobs/',
      '/v1/mailbox/jobs%2freceive',
      '/v1/mailbox/jobs%00',
      '/v1/mailbox/%6Aobs%20',
      '/v1/mailbox/jobs%c0%ae',
      '/V1/mailbox/jobs',
      '/v1/Mailbox/jobs',
      '/v1/mailbox\\jobs',
      '/v1/mailbox/jobs;x=1',
    ]) {
      const status = await raw(path);
      assert.ok(status >= 400 && status < 500, `${path}: ${status}`);
    }
    assert.deepEqual(await topics(), []);
  });

  test('ordinary names are topics, even if routes or properties have them too', async () => {
    const names = [
      'a',
      '0',
      '_',
      'a.b',
      'a.b.c',
      'x'.repeat(64),
      'constructor',
      '__proto__',
      'prove',
      'tasks',
      'receive',
      'dlq',
      'peek',
      'sender',
      'send.x',
      'tostring',
    ];
    for (const name of names) {
      assert.equal(isTopic(name), true, name);
      assert.equal(await raw(`/v1/mailbox/${name}`), 201, name);
      const { messages } = (await mailbox.call('POST', `/v1/mailbox/${name}/receive`)).json;
      assert.equal(messages.length, 1, name);
      const acked = await mailbox.call('POST', `/v1/mailbox/${name}/ack`, { tokens: [messages[0].token] });
      assert.deepEqual(acked.json, { results: ['ok'] });
    }
    assert.deepEqual((await topics()).toSorted(), names.toSorted());
  });
});
