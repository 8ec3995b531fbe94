/** Arbitrary answers of a mailbox to a batch: each result belongs to its message, or the whole answer is refused. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { formatAddress, formatUlid, isUlid, type OutgoingMessage } from '@ron/proto';
import { fuzzRuns } from '@ron/testkit';
import { requireSendResults } from './mailbox-answers.ts';

const ulid = fc.uint8Array({ minLength: 16, maxLength: 16 }).map(formatUlid);
const payloads = fc.array(fc.uint8Array({ maxLength: 20 }), { minLength: 1, maxLength: 4 });
const messagesOf = (all: readonly Uint8Array[]): readonly OutgoingMessage[] =>
  all.map((payload) => ({ topic: 'hooks.a', payload }));

const result = (payload: Uint8Array): fc.Arbitrary<Record<string, unknown>> =>
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record(
        { id: ulid, seq: fc.maxSafeNat(), duplicate: fc.boolean(), b3: fc.constant(formatAddress(blake3(payload))) },
        { noNullPrototype: true },
      ),
    },
    fc.record(
      { error: fc.constantFrom('conflict', 'full', 'topic'), id: ulid, detail: fc.string() },
      { requiredKeys: ['error', 'detail'], noNullPrototype: true },
    ),
  );
const honest = payloads.chain((all) =>
  fc.record({ sent: fc.constant(messagesOf(all)), results: fc.tuple(...all.map(result)) }),
);

test('the results of an honest mailbox are returned as they are', () => {
  fc.assert(
    fc.property(honest, ({ sent, results }) => assert.deepEqual(requireSendResults({ results }, sent), results)),
    fuzzRuns(500),
  );
});

test('of any other answer each result has the hash of its payload, or the answer is an integrity error', () => {
  let [read, refused] = [0, 0];
  const change = fc.record({
    at: fc.nat(3),
    field: fc.constantFrom('id', 'seq', 'duplicate', 'b3', 'error', 'detail', 'all'),
    value: fc.oneof(fc.jsonValue({ maxDepth: 1 }), ulid, fc.constantFrom(-1, 0.5, 'full', `b3:${'0'.repeat(64)}`)),
  });
  const answers = fc.oneof(
    fc.jsonValue().map((answer) => ({ sent: messagesOf([Buffer.from('x')]), answer })),
    fc.record({ of: honest, changes: fc.array(change, { minLength: 1, maxLength: 2 }) }).map(({ of, changes }) => {
      const results: unknown[] = [...of.results];
      for (const { at, field, value } of changes) {
        const index = at % (results.length + 1);
        const before = results[index];
        results[index] = field === 'all' || typeof before !== 'object' ? value : { ...before, [field]: value };
      }
      return { sent: of.sent, answer: { results } };
    }),
  );
  fc.assert(
    fc.property(answers, ({ sent, answer }) => {
      try {
        const results = requireSendResults(answer, sent);
        assert.equal(results.length, sent.length);
        for (const [at, each] of results.entries()) {
          if ('error' in each) assert.ok(['conflict', 'full', 'topic'].includes(each.error));
          else {
            assert.equal(each.b3, formatAddress(blake3(sent[at]!.payload)));
            assert.ok(isUlid(each.id) && Number.isSafeInteger(each.seq) && typeof each.duplicate === 'boolean');
          }
        }
        read += 1;
      } catch (error) {
        assert.ok(isRonError(error, 'integrity'), String(error));
        refused += 1;
      }
    }),
    fuzzRuns(2000),
  );
  assert.ok(read > 0 && refused > 0, `${read} read, ${refused} refused`);
});
