/** Packs and explanations of assets as text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EdgeWhyDto, PackDto } from '@ron/proto';
import { assetKeyArg, packNameArg } from './edge-service.ts';
import { packTable } from './pack-text.ts';
import { whyText } from './why-text.ts';

const A = `b3:${'a'.repeat(64)}` as const as PackDto['address'];

const PACK: PackDto = {
  name: 'planet',
  address: A,
  format: 'pmtiles',
  size: 700_000,
  tile_type: 'png',
  tiles: 85,
  zooms: [0, 3],
  bounds: [-180, -85, 180, 85],
};

test('an asset is named by its key, its path or its URL', () => {
  const key = 'live/tiles.example.org:8443/1/0/0.png?size=2';
  assert.equal(assetKeyArg(key), key);
  assert.equal(assetKeyArg(`/${key}`), key);
  assert.equal(assetKeyArg(`/edge/assets/${key}`), key);
  assert.equal(assetKeyArg(`http://127.0.0.1:7103/edge/assets/${key}`), key);
});

test('the name of a pack has 1 to 64 of a-z, 0-9, _ and -', () => {
  for (const name of ['a', 'planet_2-b', 'x'.repeat(64)]) assert.equal(packNameArg(name), name);
  for (const name of ['', 'A', 'a.b', '../x', 'x'.repeat(65)])
    assert.throws(() => packNameArg(name), /cannot be the name/);
});

test('packs are listed with their problems, and files that cannot be served below them', () => {
  assert.equal(packTable({ packs: [], bad: [] }), 'no packs; add one with `ron pack add FILE`');
  const bad = [{ name: 'old', file: 'old.pmtiles', reason: 'the root directory\nis truncated', is_served: false }];
  const lines = packTable({ packs: [PACK, { ...PACK, name: 'b', zooms: [2, 2], problem: 'its file changed' }], bad });
  const [head, planet, damaged, empty, refused] = lines.split('\n');
  assert.match(head!, /^pack +format +tiles +zoom +size +address$/);
  assert.match(planet!, /^planet +pmtiles png +85 +0-3 +684 KiB +b3:a+$/);
  assert.match(damaged!, /^b .* 2 .* not served: its file changed$/);
  assert.equal(empty, '');
  assert.equal(refused, 'old.pmtiles: the root directory\\u000ais truncated (not served)');
});

const WHY: EdgeWhyDto = {
  key: 'live/tiles.example.org/0.png',
  tier: 'cas',
  state: 'stale',
  address: A,
  size: 2048,
  media_type: 'image/png',
  pack: null,
  freshness: {
    is_fresh: false,
    age_s: 70,
    lifetime_s: 60,
    lifetime_from: 'max-age',
    must_revalidate: true,
    apparent_age_s: 1,
    age_header_s: 5,
    response_delay_s: 2.0189707,
    resident_time_s: 63,
    cache_control: 'max-age=60, must-revalidate',
    expires: null,
    date: null,
    last_modified: null,
  },
  provenance: {
    host: 'tiles.example.org',
    dialled: '203.0.113.7:443',
    certificate_key: 'ab'.repeat(32),
    etag: '"v1\u001b[2J"',
    time_ms: 1_800_000_000_000,
    log_index: 4,
  },
  proof_problem: null,
  fillable: 'not_allowed',
};

test('the explanation of a fill names host, dialled address, certificate key, ETag and the terms of its age', () => {
  const text = whyText(WHY);
  assert.match(text, /^served from +disk, stale$/m);
  assert.match(text, /^freshness +stale: age 70 s of 60 s \(max-age\), never served stale$/m);
  assert.match(text, /^age +max\(1, 5 \+ 2\.019\) \+ 63 s/m);
  assert.match(text, /^host +tiles\.example\.org$/m);
  assert.match(text, /^dialled +203\.0\.113\.7:443$/m);
  assert.match(text, /^certificate key +sha256 (?:ab){32}$/m);
  assert.match(text, /^fill log +entry 4, no checkpoint covers it yet$/m);
  assert.match(text, /^etag +"v1\\u001b\[2J"$/m, 'text of an origin cannot control the terminal');
});

test('the explanation of a missing asset states the answer to a request', () => {
  const missing = {
    ...WHY,
    tier: 'none',
    state: 'missing',
    address: null,
    size: null,
    freshness: null,
    provenance: null,
  };
  const text = whyText(missing as EdgeWhyDto);
  assert.match(
    text,
    /^served from +nowhere: a request is refused: the mode is offline, or the origin is not in fill.allow$/m,
  );
});
