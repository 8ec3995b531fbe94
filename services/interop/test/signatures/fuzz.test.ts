/** Arbitrary requests: nothing throws, every verdict is that of an independent verifier, and every reason is a known one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { reference } from './reference.ts';
import {
  hmacSecret,
  OTHER_SECRET,
  publicSecret,
  SECRET,
  TIME,
  TIME_S,
  VARIANTS,
  verify,
  type HeaderLines,
  type Sent,
} from './requests.ts';

/** Text of a header as Node gives it: Latin-1, often of the characters that the parsers care about. */
const headerText = fc.oneof(
  fc.string({
    unit: fc.constantFrom('v', '0', '1', 'a', 't', '=', ',', ' ', '.', ':', 'f', 'F', '+', '/'),
    maxLength: 90,
  }),
  fc.uint8Array({ maxLength: 90 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
  fc.constantFrom('', TIME, String(TIME_S - 300), String(TIME_S + 301), 'sha256=', 'v0=', 'v1,', 'v1a,'),
);

/** An edit of a text: most requests stay close to valid ones. */
type Edit = (text: string, other: string) => string;
const edits = fc.oneof(
  fc.constant<Edit>((text) => text),
  fc.nat(200).map(
    (at): Edit =>
      (text) =>
        text.slice(0, at) + text.slice(at + 1),
  ),
  fc.nat(200).map(
    (at): Edit =>
      (text, other) =>
        text.slice(0, at) + other + text.slice(at),
  ),
  fc.constantFrom(',', ' ', '=').map(
    (by): Edit =>
      (text, other) =>
        `${text}${by}${other}`,
  ),
  fc.constantFrom(',', ' ').map(
    (by): Edit =>
      (text) =>
        [text, ...text.split(by)].join(by),
  ),
  fc.constantFrom(2, 4, 5).map(
    (times): Edit =>
      (text) =>
        Array(times).fill(text).join(' '),
  ),
  fc.constant<Edit>((_text, other) => other),
  fc.constant<Edit>((text) => text.toUpperCase()),
);

interface Change {
  readonly kind: 'edit' | 'double' | 'remove' | 'none';
  readonly header: number;
  readonly edit: Edit;
  readonly other: string;
}
const changes: fc.Arbitrary<Change> = fc.record({
  kind: fc.constantFrom('edit', 'edit', 'edit', 'double', 'remove', 'none'),
  header: fc.nat(2),
  edit: edits,
  other: headerText,
});

function changed(headers: HeaderLines, { kind, header, edit, other }: Change): HeaderLines {
  const at = header % Math.max(headers.length, 1);
  const line = headers[at];
  if (line === undefined || kind === 'none') return headers;
  if (kind === 'double') return [...headers, line];
  if (kind === 'remove') return headers.toSpliced(at, 1);
  return headers.with(at, [line[0], edit(line[1], other)]);
}

const requests = fc
  .record({
    variant: fc.constantFrom(...VARIANTS),
    body: fc.uint8Array({ maxLength: 60 }),
    secret: fc.constantFrom(SECRET, OTHER_SECRET, Buffer.from('rotated out long ago')),
    time_s: fc.oneof(
      { weight: 4, arbitrary: fc.constant(TIME_S) },
      fc.integer({ min: TIME_S - 400, max: TIME_S + 400 }),
    ),
    changes: fc.array(changes, { maxLength: 3 }),
  })
  .map(({ variant, body, secret, time_s, changes: all }): Sent => {
    const sent = variant.sign(body, secret, String(time_s));
    return { ...sent, headers: all.reduce(changed, sent.headers) };
  });

const SECRETS = [hmacSecret(SECRET, 2), publicSecret(3), hmacSecret(OTHER_SECRET, 1)];

async function compare(sent: Sent): Promise<string> {
  const verified = await verify({ ...sent, secrets: SECRETS });
  const verdict = verified.ok ? 'accepted' : verified.reason;
  assert.equal(verdict, reference(sent, SECRETS, TIME_S), JSON.stringify({ ...sent, body: [...sent.body] }));
  return verdict;
}

test('requests near valid ones get the verdict of an independent verifier', async () => {
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(requests, async (sent) => {
      const verdict = await compare(sent);
      seen.set(verdict, (seen.get(verdict) ?? 0) + 1);
    }),
    fuzzRuns(3000),
  );
  for (const verdict of ['accepted', 'BAD_ORIGIN', 'EXPIRED_TOKEN'])
    assert.ok((seen.get(verdict) ?? 0) > 0, `no request was ${verdict}`);
});

test('arbitrary headers and bodies are refused by every scheme, as by an independent verifier', async () => {
  const values = fc.array(headerText, { minLength: 3, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...VARIANTS), values, fc.uint8Array(), async (variant, texts, body) => {
      const sent = variant.sign(body);
      const headers = sent.headers.map(([name], at): readonly [string, string] => [name, texts[at]!]);
      assert.equal(await compare({ ...sent, headers }), 'BAD_ORIGIN');
    }),
    fuzzRuns(1500),
  );
});
