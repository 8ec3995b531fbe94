/** [edge I-10] Ranges, conditions, methods and codings of every kind of asset, with the fast path and without. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Reply } from '@ron/testkit/service';
import { removeFiles } from '../fill/support.ts';
import { MODIFIED_MS, serveAssets, type ServedAsset, type ServedAssets } from './served-assets.ts';

let served: ServedAssets;
before(async () => {
  served = await serveAssets();
});
after(async () => {
  await served[Symbol.asyncDispose]();
  await removeFiles();
});

interface Case {
  readonly name: string;
  readonly method?: string;
  /** Default: the bytes that are sent to a client without `Accept-Encoding`. */
  readonly headers?: (asset: ServedAsset) => Readonly<Record<string, string>>;
  readonly status: number;
  /** First byte and end of the body. Default: whole for 200, none otherwise. */
  readonly span?: (size: number) => readonly [start: number, end: number];
  /** Whether it is about the stored coding. */
  readonly isStored?: boolean;
  readonly only?: (asset: ServedAsset) => boolean;
}

const fixed = (headers: Readonly<Record<string, string>>) => () => headers;
const tagOf = ({ about }: ServedAsset): string => about.identity.etag;
const hasDate = ({ about }: ServedAsset): boolean => about.modified_ms !== undefined;
const hasNoDate = (asset: ServedAsset): boolean => !hasDate(asset);
const isCoded = ({ about }: ServedAsset): boolean => about.stored !== undefined;
const isPlain = (asset: ServedAsset): boolean => !isCoded(asset);
const at = (seconds: number): string => new Date(MODIFIED_MS + seconds * 1000).toUTCString();
const OTHER = `"b3:${'0'.repeat(64)}"`;
const range = (value: string, name: string, status: number, span?: Case['span']): Case => ({
  name,
  headers: fixed({ range: value }),
  status,
  ...(span && { span }),
});

const RANGES: readonly Case[] = [
  range('bytes=0-0', 'the first byte', 206, () => [0, 1]),
  range('bytes=0-99', 'the first hundred bytes', 206, () => [0, 100]),
  range('bytes=10-19', 'bytes within', 206, () => [10, 20]),
  range('bytes=100-', 'an open range', 206, (size) => [100, size]),
  range('bytes=0-', 'an open range from the start', 206, (size) => [0, size]),
  range('bytes=-1', 'the last byte', 206, (size) => [size - 1, size]),
  range('bytes=-100', 'a suffix', 206, (size) => [size - 100, size]),
  range('bytes=-99999999', 'a suffix longer than the asset', 206, (size) => [0, size]),
  range('bytes=5-99999999', 'a range beyond the end', 206, (size) => [5, size]),
  range(`bytes=5-${'9'.repeat(40)}`, 'a range with a huge end', 206, (size) => [5, size]),
  range('bytes=0005-0009', 'leading zeros', 206, () => [5, 10]),
  range('BYTES=5-9', 'the unit in upper case', 206, () => [5, 10]),
  range('bytes=,5-9', 'an empty member before', 206, () => [5, 10]),
  range('bytes=5-9, ', 'an empty member after', 206, () => [5, 10]),
  range('bytes=99999999-', 'a start beyond the end', 416),
  range('bytes=99999999-999999999', 'a range beyond the end', 416),
  range(`bytes=${'9'.repeat(40)}-`, 'a huge start', 416),
  range('bytes=-0', 'an empty suffix', 416),
  range('bytes=0-1,5-6', 'two ranges', 200),
  range('bytes=9-5', 'a range backwards', 200),
  range('bytes=a-b', 'no numbers', 200),
  range('bytes=-', 'no ends', 200),
  range('bytes=', 'no range', 200),
  range('bytes', 'no equals sign', 200),
  range('bytes=1-2-3', 'three numbers', 200),
  range('bytes= 1-2', 'a space before', 200),
  range('bytes=+1-2', 'a sign', 200),
  range('bytes=0x1-0x2', 'hexadecimal numbers', 200),
  range('bytes=1.0-2', 'a fraction', 200),
  range('lines=1-2', 'another unit', 200),
  range('none', 'a word', 200),
  { name: 'HEAD ignores a range', method: 'HEAD', headers: fixed({ range: 'bytes=0-1' }), status: 200 },
  { name: 'HEAD ignores a bad range', method: 'HEAD', headers: fixed({ range: 'bytes=99999999-' }), status: 200 },
];

const CONDITIONS: readonly Case[] = [
  { name: 'If-None-Match: the tag', headers: (a) => ({ 'if-none-match': tagOf(a) }), status: 304 },
  {
    name: 'If-None-Match: the tag, HEAD',
    method: 'HEAD',
    headers: (a) => ({ 'if-none-match': tagOf(a) }),
    status: 304,
  },
  { name: 'If-None-Match: the tag, weak', headers: (a) => ({ 'if-none-match': `W/${tagOf(a)}` }), status: 304 },
  { name: 'If-None-Match: a list', headers: (a) => ({ 'if-none-match': `${OTHER}, ${tagOf(a)}` }), status: 304 },
  {
    name: 'If-None-Match: a list without spaces',
    headers: (a) => ({ 'if-none-match': `${OTHER},${tagOf(a)}` }),
    status: 304,
  },
  { name: 'If-None-Match: *', headers: fixed({ 'if-none-match': '*' }), status: 304 },
  { name: 'If-None-Match: another tag', headers: fixed({ 'if-none-match': OTHER }), status: 200 },
  { name: 'If-None-Match: without quotes', headers: (a) => ({ 'if-none-match': tagOf(a).slice(1, -1) }), status: 200 },
  { name: 'If-None-Match: a broken list', headers: (a) => ({ 'if-none-match': `${tagOf(a)} ${OTHER}` }), status: 200 },
  { name: 'If-None-Match: a prefix', headers: (a) => ({ 'if-none-match': `${tagOf(a).slice(0, 20)}"` }), status: 200 },
  { name: 'If-None-Match: empty', headers: fixed({ 'if-none-match': '""' }), status: 200 },
  { name: 'If-Match: the tag', headers: (a) => ({ 'if-match': tagOf(a) }), status: 200 },
  { name: 'If-Match: a list', headers: (a) => ({ 'if-match': `${OTHER}, ${tagOf(a)}` }), status: 200 },
  { name: 'If-Match: *', headers: fixed({ 'if-match': '*' }), status: 200 },
  { name: 'If-Match: another tag', headers: fixed({ 'if-match': OTHER }), status: 412 },
  { name: 'If-Match: the tag, weak', headers: (a) => ({ 'if-match': `W/${tagOf(a)}` }), status: 412 },
  { name: 'If-Match: malformed', headers: fixed({ 'if-match': 'b3' }), status: 412 },
  { name: 'If-Match fails before a range', headers: fixed({ 'if-match': OTHER, range: 'bytes=0-1' }), status: 412 },
  { name: 'If-Match fails, HEAD', method: 'HEAD', headers: fixed({ 'if-match': OTHER }), status: 412 },
  {
    name: 'If-Match holds, If-None-Match too',
    headers: (a) => ({ 'if-match': tagOf(a), 'if-none-match': tagOf(a) }),
    status: 304,
  },
  {
    name: 'If-None-Match holds before a range',
    headers: (a) => ({ 'if-none-match': tagOf(a), range: 'bytes=0-1' }),
    status: 304,
  },
  {
    name: 'If-None-Match fails, then the range',
    headers: fixed({ 'if-none-match': OTHER, range: 'bytes=0-1' }),
    status: 206,
    span: () => [0, 2],
  },
  {
    name: 'If-Range: the tag',
    headers: (a) => ({ 'if-range': tagOf(a), range: 'bytes=2-3' }),
    status: 206,
    span: () => [2, 4],
  },
  { name: 'If-Range: another tag', headers: fixed({ 'if-range': OTHER, range: 'bytes=2-3' }), status: 200 },
  {
    name: 'If-Range: the tag, weak',
    headers: (a) => ({ 'if-range': `W/${tagOf(a)}`, range: 'bytes=2-3' }),
    status: 200,
  },
  { name: 'If-Range: malformed', headers: fixed({ 'if-range': 'yesterday', range: 'bytes=2-3' }), status: 200 },
  {
    name: 'If-Range: another tag, unsatisfiable',
    headers: fixed({ 'if-range': OTHER, range: 'bytes=99999999-' }),
    status: 200,
  },
  {
    name: 'If-Range: the tag, unsatisfiable',
    headers: (a) => ({ 'if-range': tagOf(a), range: 'bytes=99999999-' }),
    status: 416,
  },
  { name: 'If-Range without a range', headers: fixed({ 'if-range': OTHER }), status: 200 },
  { name: 'If-Modified-Since: the date', headers: fixed({ 'if-modified-since': at(0) }), status: 304, only: hasDate },
  { name: 'If-Modified-Since: later', headers: fixed({ 'if-modified-since': at(60) }), status: 304, only: hasDate },
  { name: 'If-Modified-Since: earlier', headers: fixed({ 'if-modified-since': at(-1) }), status: 200, only: hasDate },
  { name: 'If-Modified-Since: not a date', headers: fixed({ 'if-modified-since': 'soon' }), status: 200 },
  {
    name: 'If-Modified-Since without a date',
    headers: fixed({ 'if-modified-since': at(60) }),
    status: 200,
    only: hasNoDate,
  },
  {
    name: 'If-None-Match overrides the date',
    headers: fixed({ 'if-none-match': OTHER, 'if-modified-since': at(60) }),
    status: 200,
  },
  { name: 'If-Unmodified-Since: the date', headers: fixed({ 'if-unmodified-since': at(0) }), status: 200 },
  {
    name: 'If-Unmodified-Since: earlier',
    headers: fixed({ 'if-unmodified-since': at(-1) }),
    status: 412,
    only: hasDate,
  },
  {
    name: 'If-Unmodified-Since without a date',
    headers: fixed({ 'if-unmodified-since': at(-1) }),
    status: 200,
    only: hasNoDate,
  },
  {
    name: 'If-Match overrides the date',
    headers: (a) => ({ 'if-match': tagOf(a), 'if-unmodified-since': at(-1) }),
    status: 200,
  },
  {
    name: 'If-Range: the date',
    headers: fixed({ 'if-range': at(0), range: 'bytes=2-3' }),
    status: 206,
    span: () => [2, 4],
    only: hasDate,
  },
  { name: 'If-Range: another date', headers: fixed({ 'if-range': at(1), range: 'bytes=2-3' }), status: 200 },
];

const coding = (name: string, value: string, isStored: boolean): Case => ({
  name: `Accept-Encoding: ${name}`,
  headers: fixed({ 'accept-encoding': value }),
  status: 200,
  isStored,
  only: isCoded,
});

const CODINGS: readonly Case[] = [
  coding('gzip', 'gzip', true),
  coding('several', 'br, gzip;q=0.8, *;q=0.1', true),
  coding('x-gzip', 'x-gzip', true),
  coding('in upper case', 'GZIP', true),
  coding('any', '*', true),
  coding('gzip and identity alike', 'gzip, identity', true),
  coding('identity', 'identity', false),
  coding('identity preferred', 'gzip;q=0.5, identity', false),
  coding('others only', 'br, zstd', false),
  coding('not gzip', 'gzip;q=0', false),
  coding('empty', '', false),
  coding('malformed', 'gzip;q=x', false),
  { name: 'no coding is accepted', headers: fixed({ 'accept-encoding': 'identity;q=0' }), status: 406, only: isCoded },
  { name: 'nothing is accepted', headers: fixed({ 'accept-encoding': '*;q=0' }), status: 406, only: isCoded },
  {
    name: 'a plain asset is sent in any case',
    headers: fixed({ 'accept-encoding': 'identity;q=0' }),
    status: 200,
    only: isPlain,
  },
  {
    name: 'the tag of the stored coding',
    headers: ({ about }) => ({ 'accept-encoding': 'gzip', 'if-none-match': about.stored!.etag }),
    status: 304,
    isStored: true,
    only: isCoded,
  },
  {
    name: 'the tag of the other coding',
    headers: (a) => ({ 'accept-encoding': 'gzip', 'if-none-match': tagOf(a) }),
    status: 200,
    isStored: true,
    only: isCoded,
  },
  {
    name: 'a range of the stored coding',
    headers: fixed({ 'accept-encoding': 'gzip', range: 'bytes=3-7' }),
    status: 206,
    span: () => [3, 8],
    isStored: true,
    only: isCoded,
  },
  {
    name: 'HEAD of the stored coding',
    method: 'HEAD',
    headers: fixed({ 'accept-encoding': 'gzip' }),
    status: 200,
    isStored: true,
    only: isCoded,
  },
];

const METHODS: readonly Case[] = [
  { name: 'GET', status: 200 },
  { name: 'HEAD', method: 'HEAD', status: 200 },
  ...['POST', 'PUT', 'DELETE', 'PATCH'].map((method) => ({ name: method, method, status: 405 })),
];

for (const isFast of [true, false]) {
  describe(isFast ? 'with the fast path' : 'without the fast path', () => {
    for (const each of [...METHODS, ...RANGES, ...CONDITIONS, ...CODINGS]) {
      test(each.name, async () => {
        const service = isFast ? served.fast : served.routed;
        const assets = served.assets.filter((asset) => each.only?.(asset) ?? true);
        assert.ok(assets.length > 0);
        for (const asset of assets) {
          const reply = await service.send(each.method ?? 'GET', `/edge/assets/${asset.path}`, {
            headers: each.headers?.(asset) ?? {},
          });
          check(reply, asset, each);
        }
      });
    }
  });
}

function check(reply: Reply, { name, about, media_type, cache_control }: ServedAsset, each: Case): void {
  const { status, headers, body } = reply;
  assert.equal(status, each.status, `${name}: ${reply.text.slice(0, 200)}`);
  if (status === 405) return assert.equal(headers['allow'], 'GET, HEAD, OPTIONS');
  const { bytes, etag } = each.isStored === true ? about.stored! : about.identity;
  if (status >= 400) {
    assert.match(String(headers['content-type']), /^application\/problem\+json/, name);
    if (status === 416) assert.equal(headers['content-range'], `bytes */${bytes.length}`, name);
    return;
  }
  assert.equal(headers['etag'], etag, name);
  assert.equal(headers['cache-control'], cache_control, name);
  assert.match(String(headers['cache-status']), /^ron-edge; (?:hit; detail=(?:pack|ram|cas)|fwd=miss)/, name);
  assert.equal(headers['transfer-encoding'], undefined, name);
  assert.equal(headers['vary'], about.stored === undefined ? undefined : 'Accept-Encoding', name);
  if (status === 304) {
    assert.equal(headers['content-length'], undefined, name);
    return assert.equal(body.length, 0, name);
  }
  const [start, end] = each.span?.(bytes.length) ?? [0, bytes.length];
  assert.equal(headers['content-type'], media_type, name);
  assert.equal(headers['content-length'], String(end - start), name);
  assert.equal(headers['content-encoding'], each.isStored === true ? 'gzip' : undefined, name);
  if (status === 206) assert.equal(headers['content-range'], `bytes ${start}-${end - 1}/${bytes.length}`, name);
  const expected = each.method === 'HEAD' ? Buffer.alloc(0) : bytes.subarray(start, end);
  assert.ok(body.equals(expected), `${name}: the bytes differ`);
}
