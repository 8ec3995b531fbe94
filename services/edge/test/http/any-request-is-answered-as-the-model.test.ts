/** Random ranges, conditions and codings are answered as the model of RFC 9110 says, with the fast path and without. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { removeFiles } from '../fill/support.ts';
import { modelAnswer } from './rfc-model.ts';
import { MODIFIED_MS, serveAssets, type ServedAsset, type ServedAssets } from './served-assets.ts';

let served: ServedAssets;
before(async () => {
  served = await serveAssets();
});
after(async () => {
  await served[Symbol.asyncDispose]();
  await removeFiles();
});

const RUNS = Number(process.env['RON_FUZZ_RUNS'] ?? 150);
const number = fc.oneof(fc.nat(20), fc.nat(4000), fc.constant(2 ** 53), fc.constant('')).map(String);
const garbage = fc.stringMatching(/^[\x21-\x7e](?:[\x20-\x7e]{0,20}[\x21-\x7e])?$/);
const ranges = fc.oneof(
  fc.tuple(number, number).map(([first, last]) => `bytes=${first}-${last}`),
  fc
    .array(fc.tuple(number, number), { minLength: 1, maxLength: 3 })
    .map((all) => `bytes=${all.map(([a, b]) => `${a}-${b}`).join(', ')}`),
  garbage.map((text) => `bytes=${text}`),
  garbage,
);
const date = fc.integer({ min: -2, max: 2 }).map((days) => new Date(MODIFIED_MS + days * 86_400_000).toUTCString());
const codings = fc
  .array(fc.tuple(fc.constantFrom('gzip', 'br', 'identity', '*', 'x'), fc.constantFrom('', ';q=0', ';q=0.5', ';q=1')), {
    maxLength: 3,
  })
  // A coding that is named twice has no defined weight.
  .filter((all) => new Set(all.map(([name]) => name)).size === all.length)
  .map((all) => all.map((pair) => pair.join('')).join(', '));

function tagsOf({ about }: ServedAsset): fc.Arbitrary<string> {
  const known = [about.identity.etag, ...(about.stored === undefined ? [] : [about.stored.etag])];
  const tag = fc.oneof(
    fc.constantFrom(...known),
    fc.constantFrom(...known.map((each) => `W/${each}`)),
    fc.constant('"other"'),
    fc.constantFrom('""', 'W/""', '"a b"', 'x', '"', '*'),
  );
  return fc.oneof(
    fc.constant('*'),
    tag,
    fc.array(tag, { minLength: 1, maxLength: 3 }).map((all) => all.join(', ')),
  );
}

function headersOf(asset: ServedAsset) {
  const tags = tagsOf(asset);
  const optional = <T>(values: fc.Arbitrary<T>) => fc.option(values, { nil: undefined, freq: 2 });
  return fc.record({
    range: optional(ranges),
    'if-range': optional(
      fc.oneof(
        tags.filter((text) => !text.includes(',')),
        date,
      ),
    ),
    'if-match': optional(tags),
    'if-none-match': optional(tags),
    'if-modified-since': optional(fc.oneof(date, garbage)),
    'if-unmodified-since': optional(fc.oneof(date, garbage)),
    'accept-encoding': optional(codings),
  });
}

for (const index of [0, 1, 2, 3]) {
  test(`asset ${index}`, async () => {
    const asset = served.assets[index]!;
    await fc.assert(
      fc.asyncProperty(fc.constantFrom('GET', 'HEAD'), headersOf(asset), async (method, given) => {
        const entries = Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined);
        const headers = Object.fromEntries(entries);
        const expected = modelAnswer(method, headers, asset.about);
        for (const service of [served.fast, served.routed]) {
          const reply = await service.send(method, `/edge/assets/${asset.path}`, { headers });
          const which = service === served.fast ? 'with the fast path' : 'without';
          assert.equal(reply.status, expected.status, which);
          assert.equal(reply.headers['content-range'], expected.content_range, which);
          if (reply.status >= 400) continue;
          assert.equal(reply.headers['etag'], expected.etag, which);
          if (reply.status !== 304) assert.equal(reply.headers['content-encoding'], expected.coding, which);
          assert.ok(reply.body.equals(expected.body), which);
        }
      }),
      { numRuns: RUNS },
    );
  });
}

test('any text in Range, If-Range, If-None-Match and Accept-Encoding gets the same answer with the fast path and without', async () => {
  const text = fc.string({
    unit: fc.integer({ min: 0x21, max: 0xff }).map((code) => String.fromCharCode(code)),
    minLength: 1,
  });
  const value = text.filter((each) => !each.includes('\x7f'));
  const names = [
    'range',
    'if-range',
    'if-none-match',
    'if-match',
    'accept-encoding',
    'origin',
    'cache-control',
  ] as const;
  const headers = fc.dictionary(
    fc.constantFrom(...names),
    fc.oneof(
      value,
      value.map((each) => `bytes=${each}`),
      value.map((each) => `"${each}"`),
    ),
  );
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...served.assets.keys()), headers, async (index, given) => {
      const { path } = served.assets[index]!;
      const [fast, routed] = await Promise.all(
        [served.fast, served.routed].map((service) => service.send('GET', `/edge/assets/${path}`, { headers: given })),
      );
      assert.ok(fast!.status < 500, fast!.text);
      assert.equal(fast!.status, routed!.status);
      for (const name of ['etag', 'content-range', 'content-encoding', 'content-length', 'vary'])
        if (fast!.status < 400) assert.equal(fast!.headers[name], routed!.headers[name], name);
      if (fast!.status < 400) assert.ok(fast!.body.equals(routed!.body));
    }),
    { numRuns: RUNS },
  );
});
