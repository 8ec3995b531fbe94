/** Arbitrary documents of provider files: read as they were stored, or refused. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { INTEROP_LIMITS } from '@ron/proto';
import { fuzzRuns } from '@ron/testkit';
import { requireDescriptor } from '../descriptor.ts';
import { EMPTY_DOCUMENT, storedOf, type ProviderDocument, type StoredProvider } from './stored-provider.ts';

const NAME = 'github';
const secret = fc.record(
  {
    version: fc.integer({ min: 1, max: 1000 }),
    kind: fc.constantFrom('hmac' as const, 'ed25519' as const),
    created_ms: fc.maxSafeNat(),
    ends_ms: fc.maxSafeNat(),
    wrapped: fc.record({ kid: fc.string(), wrapped_b64: fc.base64String() }, { noNullPrototype: true }),
    sealed_b64: fc.base64String(),
  },
  { requiredKeys: ['version', 'kind', 'created_ms'], noNullPrototype: true },
);
const documents: fc.Arbitrary<StoredProvider> = fc.record(
  {
    format: fc.constant(1 as const),
    revision: fc.maxSafeNat(),
    secret_version: fc.maxSafeNat(),
    incarnation: fc.maxSafeNat(),
    descriptor: fc
      .record(
        {
          scheme: fc.constantFrom('github' as const, 'slack' as const, 'stripe' as const, 'standard' as const),
          topic: fc.stringMatching(/^hooks\.[a-z]{1,20}$/),
          networks: fc.uniqueArray(fc.constantFrom('192.0.2.0/24', '10.0.0.0/8', '2001:db8::/32'), { maxLength: 3 }),
          origins: fc.uniqueArray(fc.constantFrom('https://a.example', 'http://b.example:8080'), { maxLength: 2 }),
          limits: fc.record({ rps: fc.integer({ min: 1, max: 100 }), inflight: fc.integer({ min: 1, max: 64 }) }),
        },
        { requiredKeys: ['scheme'] },
      )
      .map((init) => requireDescriptor(NAME, init)),
    secrets: fc.array(secret, { minLength: 1, maxLength: INTEROP_LIMITS.secrets }),
  },
  { noNullPrototype: true },
);

const copyOf = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

test('every provider is read as it was stored', () => {
  assert.equal(storedOf(NAME, EMPTY_DOCUMENT), undefined);
  fc.assert(
    fc.property(documents, (document) => {
      assert.deepEqual(storedOf(NAME, copyOf(document) as ProviderDocument), copyOf(document));
    }),
    fuzzRuns(500),
  );
});

test('a document with other fields is refused with an error, or is a provider of its name within the limits', () => {
  let [read, refused] = [0, 0];
  const changes = fc.record({
    part: fc.constantFrom('document', 'descriptor', 'limits'),
    field: fc.nat(),
    value: fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom('other', 'generic', 'x', -1, 0.5, 2 ** 60, [], {}, { length: 1 }),
    ),
  });
  fc.assert(
    fc.property(documents, fc.array(changes, { minLength: 1, maxLength: 3 }), (original, all) => {
      const document = copyOf(original) as Record<string, Record<string, never>>;
      for (const { part, field, value } of all) {
        const { descriptor } = document;
        const into = { document, descriptor, limits: descriptor?.['limits'] }[part];
        if (typeof into !== 'object' || into === null) continue;
        const names = Object.keys(into);
        if (names.length > 0) Object.assign(into, { [names[field % names.length]!]: value });
      }
      try {
        const stored = storedOf(NAME, document as unknown as ProviderDocument);
        if (stored === undefined) return;
        read += 1;
        assert.deepEqual(requireDescriptor(NAME, stored.descriptor), stored.descriptor);
        assert.equal(stored.descriptor.name, NAME);
        assert.ok([stored.revision, stored.secret_version, stored.incarnation].every(Number.isSafeInteger));
        assert.ok(Array.isArray(stored.secrets) && stored.secrets.length <= INTEROP_LIMITS.secrets);
      } catch (error) {
        assert.ok(error instanceof Error && !(error instanceof assert.AssertionError), String(error));
        refused += 1;
      }
    }),
    fuzzRuns(2000),
  );
  assert.ok(read > 0 && refused > 0, `${read} read, ${refused} refused`);
});
