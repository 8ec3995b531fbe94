/** The names of an accepted delivery: dedup value, delivery id, event, challenge. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import type { Verified } from '../../src/signatures/verify.ts';
import { fuzzRuns } from '@ron/testkit';
import { GENERIC, hmac, SECRET, TIME, VARIANTS, verify, type HeaderLines, type Sent } from './requests.ts';

const variant = (name: string): ((body: string | Uint8Array, time?: string) => Sent) => {
  const { sign } = VARIANTS.find((each) => each.name === name)!;
  return (body, time) => sign(Buffer.from(body as string), SECRET, time);
};
const [github, slack, stripe, standard, generic] = ['github', 'slack', 'stripe', 'standard v1', 'generic'].map(
  variant,
) as [
  ReturnType<typeof variant>,
  ReturnType<typeof variant>,
  ReturnType<typeof variant>,
  ReturnType<typeof variant>,
  ReturnType<typeof variant>,
];
const MIB = 1024 * 1024;
const b3 = (body: string): string => `b3:${blake3(Buffer.from(body)).toString('hex')}`;
const withLines = (sent: Sent, ...lines: HeaderLines): Sent => ({ ...sent, headers: [...sent.headers, ...lines] });

async function described(sent: Sent): Promise<Omit<Verified, 'ok' | 'secret_version'>> {
  const verified = await verify(sent);
  assert.ok(verified.ok, JSON.stringify(verified));
  const { ok: _ok, secret_version: _version, ...rest } = verified;
  return rest;
}

test('github: the body is the dedup value; delivery id and event are marked as unsigned', async () => {
  const sent = withLines(github('{"id":"x"}'), ['X-GitHub-Delivery', 'd-1'], ['X-GitHub-Event', 'push']);
  const dedup = b3('{"id":"x"}');
  assert.deepEqual(await described(sent), {
    dedup,
    answers_empty: false,
    delivery_id: 'unsigned-d-1',
    event: 'unsigned-push',
  });
  assert.deepEqual(await described(github('{"id":"x"}')), { dedup, answers_empty: false });
  const odd = withLines(github(''), ['X-GitHub-Delivery', 'a b'], ['X-GitHub-Event', 'x'.repeat(257)]);
  assert.deepEqual(
    await described(odd),
    { dedup: b3(''), answers_empty: false },
    'text that is not short and printable',
  );
});

test('slack: an event is named by its event_id, also in a retry with a new time', async () => {
  const body = '{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}';
  const wanted = { dedup: 'id:Ev1', answers_empty: true, delivery_id: 'Ev1', event: 'message' };
  assert.deepEqual(await described(slack(body)), wanted);
  assert.deepEqual(await described(slack(body, String(Number(TIME) + 60))), wanted);
});

test('slack: two equal slash commands at different times are two deliveries', async () => {
  const body = 'token=x&command=%2Fweather&text=94070';
  assert.deepEqual(await described(slack(body)), {
    dedup: `${b3(body)}:${TIME}`,
    answers_empty: true,
    event: '/weather',
  });
  const later = String(Number(TIME) + 1);
  assert.equal((await described(slack(body, later))).dedup, `${b3(body)}:${later}`);
  assert.equal((await described(slack('command=a b'))).event, undefined);
  const large = `command=x&text=${'a'.repeat(64 * 1024)}`;
  assert.equal((await described(slack(large))).event, undefined, 'a large form is not decoded');
});

test('slack: url_verification has a challenge, and nothing else has', async () => {
  const challenge = '3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P';
  const body = { type: 'url_verification', challenge };
  assert.equal((await described(slack(JSON.stringify(body)))).challenge, challenge);
  for (const other of [
    { ...body, type: 'event_callback' },
    { ...body, challenge: 'a b' },
    { ...body, challenge: '<script>\n' },
    { ...body, challenge: 7 },
    { type: 'url_verification' },
    { event: body },
    [body],
  ])
    assert.equal((await described(slack(JSON.stringify(other)))).challenge, undefined, JSON.stringify(other));
});

test('stripe: the id of the event is the dedup value, the body if it has none', async () => {
  assert.deepEqual(await described(stripe('{"id":"evt_1","type":"invoice.paid"}')), {
    dedup: 'id:evt_1',
    answers_empty: false,
    delivery_id: 'evt_1',
    event: 'invoice.paid',
  });
  for (const body of ['{}', '', 'null', '[]', '{"id":7}', '{"id":""}', '{"id":"a b"}', `{"id":"${'x'.repeat(257)}"}`])
    assert.deepEqual(await described(stripe(body)), { dedup: b3(body), answers_empty: false }, body);
});

test('standard: the signed id is the dedup value; the type in the body is the event', async () => {
  const wanted = { dedup: 'id:msg_1', answers_empty: false, delivery_id: 'msg_1' };
  assert.deepEqual(await described(standard('{"type":"user.created"}')), { ...wanted, event: 'user.created' });
  assert.deepEqual(await described(standard(`{"x":"${'x'.repeat(MIB - 19)}","type":"a"}`)), { ...wanted, event: 'a' });
  assert.deepEqual(await described(standard('{"type":"a"')), wanted);
});

test('the JSON of a large verified body is read in many turns', async () => {
  const body = `{"x":[${'{},'.repeat(300_000)}0],"id":"evt_1","event_id":"Ev1","type":"a"}`;
  for (const [sent, dedup] of [
    [stripe(body), 'id:evt_1'],
    [slack(body), 'id:Ev1'],
    [standard(body), 'id:msg_1'],
  ] as const) {
    const turns: number[] = [];
    const verified = await verify({ ...sent, takeTurn: async (bytes) => void turns.push(bytes) });
    assert.ok(verified.ok && verified.dedup === dedup);
    // At most 64 KiB each, besides the digest.
    assert.ok(turns.length > body.length / (64 * 1024) + 4, `${turns.length} turns`);
  }
});

test('generic: a signed id is the dedup value; an unsigned one is marked', async () => {
  const body = '{"type":"ignored"}';
  assert.deepEqual(await described(generic(body)), { dedup: 'id:msg_1', answers_empty: false, delivery_id: 'msg_1' });
  const template = { ...GENERIC, template: '{timestamp}.{body}' };
  const value = `sha512=${hmac(SECRET, `${TIME}.`, Buffer.from(body), 'sha512').toString('hex')}`;
  const sent: Sent = {
    scheme: 'generic',
    generic: template,
    headers: [
      ['X-Time', TIME],
      ['X-Sign', value],
    ],
    body: Buffer.from(body),
  };
  assert.deepEqual(await described(sent), { dedup: b3(body), answers_empty: false });
  const named = withLines(sent, ['X-Id', 'a:b']);
  assert.deepEqual(await described(named), { dedup: b3(body), answers_empty: false, delivery_id: 'unsigned-a:b' });
});

test('a signed id never has the dedup value of a hash', async () => {
  const hash = b3('x');
  assert.equal((await described(stripe(JSON.stringify({ id: hash })))).dedup, `id:${hash}`);
});

/** Bodies that JSON readers disagree about, or that are costly. */
const HOSTILE: readonly (readonly [name: string, body: Uint8Array])[] = [
  ['invalid UTF-8', Buffer.from('7b226964223a22ff227d', 'hex')],
  ['a byte order mark', Buffer.from('\ufeff{"id":"a"}')],
  ['UTF-16', Buffer.from('{"id":"a"}', 'utf16le')],
  ['a lone surrogate', Buffer.from('{"id":"\\ud800"}')],
  ['a zero byte in the id', Buffer.from('{"id":"a\\u0000b"}')],
  ['a line feed in the id', Buffer.from('{"id":"a\\nb"}')],
  ['a trailing comma', Buffer.from('{"id":"a",}')],
  ['two values', Buffer.from('{"id":"a"}{"id":"b"}')],
  ['an object as id', Buffer.from('{"id":{"toString":"a"}}')],
  ['an id in the prototype', Buffer.from('{"__proto__":{"id":"a","type":"b"}}')],
  ['a constructor', Buffer.from('{"constructor":{"prototype":{"id":"a"}}}')],
  ['deep arrays', Buffer.from(`{"x":${'['.repeat(500_000)}${']'.repeat(500_000)}}`)],
  ['deep open arrays', Buffer.from(`{"x":${'['.repeat(1_000_000)}`)],
  ['deep objects', Buffer.from('{"x":'.repeat(200_000))],
  ['white space only', Buffer.alloc(1024 * 1024, ' ')],
];

test('hostile bodies have no id, and leave no trace on the next delivery', async () => {
  for (const [name, body] of HOSTILE) {
    for (const each of [slack(body), stripe(body), standard(body), github(body), generic(body)]) {
      const { dedup, event } = await described(each);
      assert.ok(each.scheme === 'standard' || each.scheme === 'generic' || dedup.startsWith('b3:'), name);
      assert.equal(event, undefined, name);
    }
    assert.equal((await described(stripe('{"id":"evt_1"}'))).dedup, 'id:evt_1', name);
    assert.equal((await described(stripe('{}'))).delivery_id, undefined, name);
  }
});

test('of duplicate keys the last one counts, everywhere', async () => {
  assert.equal((await described(stripe('{"id":"a","id":"b"}'))).dedup, 'id:b');
  assert.equal((await described(slack('{"event_id":"a","event_id":"b"}'))).dedup, 'id:b');
  assert.equal((await described(stripe('{"id":"a","id":7}'))).delivery_id, undefined);
});

test('any body of JSON or bytes is described in short printable text', async () => {
  const keys = fc.constantFrom('id', 'type', 'event_id', 'event', 'challenge', '__proto__', 'constructor');
  const tree = fc.dictionary(keys, fc.oneof(fc.string(), fc.jsonValue(), fc.dictionary(keys, fc.string())));
  const bodies = fc.oneof(
    tree.map((value) => Buffer.from(JSON.stringify(value))),
    fc.uint8Array().map((bytes) => Buffer.from(bytes)),
    fc.uint8Array().map((bytes) => Buffer.concat([Buffer.from('{"id":"'), bytes, Buffer.from('"}')])),
    fc.uint8Array().map((bytes) => Buffer.concat([Buffer.from('command='), bytes])),
  );
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(slack, stripe, standard, generic, github), bodies, async (scheme, body) => {
      const { dedup, delivery_id, event, challenge } = await described(scheme(body));
      for (const text of [dedup, delivery_id, event, challenge]) assert.match(text ?? 'none', /^[\x21-\x7e]{1,300}$/);
      assert.match(dedup, /^(id:.+|b3:[0-9a-f]{64}(:\d+)?)$/);
    }),
    fuzzRuns(800),
  );
});
