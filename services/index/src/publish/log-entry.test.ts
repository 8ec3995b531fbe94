import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import type { LogChange } from '../store/index-store.ts';
import { decodeLogEntry, encodeLogEntry, NAME_ENTRY_BYTES_MAX, type LogEntry } from './log-entry.ts';
import { nameSigner } from './testing.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const alice = nameSigner();
const record = alice.record(`${`${'a'.repeat(62)}/`.repeat(4)}abc`);
const rival = alice.record(record.label);
const CHANGES: readonly LogChange[] = [
  { kind: 'name', record },
  { kind: 'fork', record, rival },
  { kind: 'trust', prefix: '', key: alice.key },
  { kind: 'trust', prefix: 'docs/old', key: undefined },
  { kind: 'pin', target: 'name:docs', isPinned: true },
  { kind: 'pin', target: `b3:${'ab'.repeat(32)}`, isPinned: false },
  { kind: 'admin', action: 'reindex' },
];
const entryOf = (change: LogChange): LogEntry => ({
  at_ms: 1_700_000_000_000,
  by: { subject: 'alice', capability_id: 'c1' },
  change,
});

test('every kind of entry survives encoding and decoding, within the limit', () => {
  for (const change of CHANGES) {
    const bytes = encodeLogEntry(entryOf(change));
    assert.ok(bytes.length <= NAME_ENTRY_BYTES_MAX);
    assert.deepEqual(decodeLogEntry(bytes), entryOf(change));
  }
});

test('text of a capability is bounded and printable', () => {
  const by = { subject: `\u0000é${'x'.repeat(1000)}`, capability_id: '' };
  const decoded = decodeLogEntry(encodeLogEntry({ ...entryOf(CHANGES[0]!), by }));
  assert.equal(decoded?.by.subject, `??${'x'.repeat(254)}`);
});

test('an entry in another spelling, of another version or with another field is refused', () => {
  const text = Buffer.from(encodeLogEntry(entryOf(CHANGES[2]!))).toString();
  for (const other of [
    text.replace('"v":1', '"v":2'),
    text.replace('"v":1', '"v":1,"x":1'),
    text.replace('{"v"', '{ "v"'),
    text.replace('"kind":"trust"', '"kind":"trust","kind":"trust"'),
    text.replace('"kind":"trust"', '"kind":"other"'),
    text.replace('"prefix":""', '"prefix":"a/"'),
    text.replace('1700000000000', '1.7e12'),
    `${text}\n`,
    text.slice(0, -1),
    '[]',
    'null',
    '',
  ]) {
    assert.notEqual(other, text);
    assert.equal(decodeLogEntry(Buffer.from(other)), undefined, other);
  }
});

test('fuzz: no bytes throw, and accepted bytes are the only spelling of their entry', () => {
  const mutated = fc.tuple(fc.constantFrom(...CHANGES), fc.nat(), fc.nat({ max: 255 })).map(([change, at, byte]) => {
    const bytes = Uint8Array.from(encodeLogEntry(entryOf(change)));
    bytes[at % bytes.length] = byte;
    return bytes;
  });
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 300 }),
        fc.json().map((text) => Buffer.from(text)),
        mutated,
      ),
      (bytes) => {
        const entry = decodeLogEntry(bytes);
        if (entry !== undefined) assert.deepEqual(Buffer.from(encodeLogEntry(entry)), Buffer.from(bytes));
      },
    ),
    { numRuns },
  );
});
