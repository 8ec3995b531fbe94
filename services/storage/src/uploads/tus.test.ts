import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import {
  bringsBytes,
  headHeaders,
  metadataFrom,
  numberIn,
  optionsHeaders,
  requireVersion,
  sizeIn,
  statusHeaders,
} from './tus.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const ADDRESS = `b3:${'0123456789abcdef'.repeat(4)}`;
const base64 = (text: string): string => Buffer.from(text, 'latin1').toString('base64');

test('metadata: the values of a client are parsed', () => {
  const key = fc.stringMatching(/^[!-+\--~]{1,20}$/);
  const pairs = fc.uniqueArray(fc.tuple(key, fc.string({ unit: 'binary-ascii', maxLength: 40 })), {
    selector: ([name]) => name,
    maxLength: 8,
  });
  fc.assert(
    fc.property(pairs, (given) => {
      const others = given.filter(([name]) => name !== 'filetype' && name !== 'address');
      const all = [...others, ['filetype', 'text/plain'], ['address', ADDRESS]] as const;
      const text = all.map(([name, value]) => (value === '' ? name : `${name} ${base64(value)}`)).join(',');
      assert.deepEqual(metadataFrom(text), { media_type: 'text/plain', address: ADDRESS });
    }),
    { numRuns },
  );
});

test('metadata: a media type with a line break is refused, because no header can hold it', () => {
  assert.equal(metadataFrom(`filetype ${base64('text/plain; a=b')}`).media_type, 'text/plain; a=b');
  assert.throws(() => metadataFrom(`filetype ${base64('text/plain;\n a=b')}`), /not a media type/);
});

test('metadata: any text is parsed or refused', () => {
  const near = fc.array(fc.constantFrom('a', 'YQ==', 'filetype', 'address', ' ', ',', '=', '\u00e9', '', 'text/plain'));
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: 'binary' }),
        near.map((parts) => parts.join('')),
      ),
      (text) => {
        try {
          const { address, media_type } = metadataFrom(text);
          assert.ok(address === undefined || /^b3:[0-9a-f]{64}$/.test(address));
          assert.ok(media_type === undefined || media_type.includes('/'));
        } catch (error) {
          assert.ok(isRonError(error, 'bad_request') || isRonError(error, 'unsupported_media'));
        }
      },
    ),
    { numRuns },
  );
});

test('numbers: only whole numbers that fit a size', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.nat().map(String), fc.double().map(String)), (text) => {
      const isNumber = /^\d{1,15}$/.test(text);
      if (isNumber) assert.equal(numberIn({ 'upload-offset': text }, 'upload-offset'), Number(text));
      else assert.throws(() => numberIn({ 'upload-offset': text }, 'upload-offset'), { code: 'bad_request' });
    }),
    { numRuns },
  );
  assert.equal(numberIn({}, 'upload-offset'), undefined);
});

test('sizes: known or deferred, never both and never neither', () => {
  assert.equal(sizeIn({ 'upload-length': '0' }), 0);
  assert.equal(sizeIn({ 'upload-defer-length': '1' }), undefined);
  for (const headers of [
    {},
    { 'upload-length': '1', 'upload-defer-length': '1' },
    { 'upload-defer-length': '0' },
    { 'upload-length': '1', 'upload-defer-length': '0' },
  ]) {
    assert.throws(() => sizeIn(headers), { code: 'bad_request' });
  }
});

test('bodies: upload bytes, none, or refused', () => {
  const type = 'application/offset+octet-stream';
  assert.equal(bringsBytes({ 'content-type': type, 'content-length': '5' }), true);
  assert.equal(bringsBytes({ 'content-type': type, 'transfer-encoding': 'chunked' }), true);
  assert.equal(bringsBytes({ 'content-type': type, 'content-length': '0' }), true);
  assert.equal(bringsBytes({}), false);
  assert.equal(bringsBytes({ 'content-length': '0', 'content-type': 'text/plain' }), false);
  for (const headers of [
    { 'content-length': '5' },
    { 'transfer-encoding': 'chunked' },
    { 'content-type': 'text/plain', 'content-length': '5' },
    { 'content-type': type, 'content-length': '5', 'content-encoding': 'br' },
  ]) {
    assert.throws(() => bringsBytes(headers), { code: 'unsupported_media' });
  }
});

test('versions: exactly one is accepted', () => {
  requireVersion({ 'tus-resumable': '1.0.0' });
  for (const version of ['1.0.1', '', '1.0.0, 1.0.0']) {
    assert.throws(() => requireVersion({ 'tus-resumable': version }), { code: 'precondition_failed' });
  }
  assert.throws(() => requireVersion({}), { code: 'precondition_failed' });
});

test('answers: the address once it is known, the date in HTTP format', () => {
  const open = { id: 'x', offset: 5, size: 10, metadata: 'a YQ==', expires_ms: 0, address: undefined };
  assert.deepEqual(statusHeaders(open, 'd'), {
    'Tus-Resumable': '1.0.0',
    'Upload-Offset': '5',
    'Upload-Expires': 'Thu, 01 Jan 1970 00:00:00 GMT',
  });
  const done = { ...open, offset: 10, address: ADDRESS as never };
  assert.equal(statusHeaders(done, 'd')['Ron-Address'], ADDRESS);
  assert.equal(statusHeaders(done, 'd')['Ron-Durability'], 'd');
  assert.equal(headHeaders(done, 'd')['Upload-Metadata'], 'a YQ==');
  assert.equal(headHeaders({ ...open, metadata: '' }, 'd')['Upload-Metadata'], undefined);
  assert.equal(headHeaders({ ...open, size: undefined }, 'd')['Upload-Defer-Length'], '1');
  assert.equal(optionsHeaders(7)['Tus-Max-Size'], '7');
});
