/** The map page in headless Chromium: it draws packs from this server alone, and shows when a byte is false. */
import assert from 'node:assert/strict';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress } from '@ron/proto';
import { tempDir } from '@ron/testkit';
import type { Browser } from 'playwright-core';
import { makePmtiles } from '../packs/make-pmtiles.ts';
import { fixture } from '../packs/pack-fixtures.ts';
import { untilReady } from '../packs/registry-support.ts';
import { startService, type TestEdge } from '../support.ts';
import { noBrowser, openBrowser, showPage, VIEW, type ShownPage } from './browser.ts';
import { quarterTiles, QUARTERS, westernHalf, type Colour } from './make-tiles.ts';
import { manInTheMiddle } from './man-in-the-middle.ts';

const GROUP = 65_536;
const quarters = makePmtiles({
  tiles: quarterTiles(2, 50_000),
  type: 'png',
  metadata: { name: 'quarters', attribution: '<a href="https://example.org">Made</a> <img src=x onerror=alert(1)>' },
});
const vector = makePmtiles({
  tiles: [{ z: 0, x: 0, y: 0, bytes: westernHalf('land') }],
  type: 'mvt',
  tile_codec: 'gzip',
  directory_codec: 'gzip',
  metadata: { name: 'halves', vector_layers: [{ id: 'land', fields: {} }] },
});

function assertColour(found: readonly number[], expected: Colour, what: string): void {
  const isNear = found.every((value, at) => Math.abs(value - expected[at]!) <= 6);
  assert.ok(isNear, `${what}: ${found.join(' ')} instead of ${expected.join(' ')}`);
}

/** Points in the four quarters of the drawn world. */
const IN_QUARTERS = [
  [VIEW.width / 2 - 60, 180],
  [VIEW.width / 2 + 60, 180],
  [VIEW.width / 2 - 60, 320],
  [VIEW.width / 2 + 60, 320],
] as const;

describe('the map page', { skip: noBrowser ?? false }, () => {
  let browser: Browser;
  let edge: TestEdge;
  const temp = tempDir();

  before(async () => {
    const { path } = await temp;
    await mkdir(join(path, 'packs'), { recursive: true });
    await writeFile(join(path, 'packs', 'quarters.pmtiles'), quarters);
    await writeFile(join(path, 'packs', 'halves.pmtiles'), vector);
    const raster = fixture('pm-raster-z3.pmtiles');
    if (raster !== undefined) await copyFile(raster, join(path, 'packs', 'world.pmtiles'));
    const plain = fixture('mb-plain.mbtiles');
    if (plain !== undefined) await copyFile(plain, join(path, 'packs', 'plain.mbtiles'));
    [browser, edge] = await Promise.all([openBrowser(), startService({ dir: path })]);
    await untilReady(edge);
  });

  after(async () => {
    await browser?.close();
    await edge?.[Symbol.asyncDispose]();
    await (await temp)[Symbol.asyncDispose]();
  });

  const show = (name: string, url = edge.url): Promise<ShownPage> => showPage(browser, `${url}/edge/map/${name}`);

  test('draws a raster pack from this server alone, and verifies every byte of it', async () => {
    await using shown = await show('quarters');
    const { state, text, verified_bytes } = await shown.shown();
    // The policy applies to the parser of the attribution too, which reports the handler in it.
    const others = shown.problems.filter((problem) => !problem.startsWith('Executing inline event handler violates'));
    assert.deepEqual(others, []);
    assert.equal(state, 'verified');
    assert.match(text, new RegExp(`bytes verified against ${formatAddress(blake3(quarters))}$`));
    const colours = await shown.colourAt(IN_QUARTERS);
    colours.forEach((colour, at) => assertColour(colour, QUARTERS[at]!, `quarter ${at}`));
    const foreign = shown.requests.filter((url) => !url.startsWith(`${edge.url}/`) && !/^(?:data|blob):/.test(url));
    assert.deepEqual(foreign, []);
    const reads = shown.requests.map((url) => new URL(url)).filter(({ pathname }) => pathname.includes('/pack/'));
    assert.ok(reads.length > 1);
    let expected_bytes = 0;
    for (const { pathname, searchParams } of reads) {
      assert.equal(pathname, '/edge/assets/pack/quarters.pmtiles');
      assert.equal(searchParams.get('proof'), 'bao');
      const [offset, length] = [Number(searchParams.get('offset')), Number(searchParams.get('length'))];
      expected_bytes += Math.min(length, quarters.length - offset);
    }
    assert.equal(verified_bytes, expected_bytes);
    // The attribution of the pack is shown, without its scripts and pictures.
    const attribution = shown.page.locator('.maplibregl-ctrl-attrib-inner');
    assert.match(await attribution.innerHTML(), /^<a href="https:\/\/example\.org\/"[^>]*>Made<\/a>/);
    assert.equal(await attribution.locator('img, [onerror]').count(), 0);
  });

  test('a byte that is flipped on the way is caught and shown, and is not drawn', async () => {
    let flipped = 0;
    await using proxy = await manInTheMiddle(edge.url, (target, body) => {
      const query = new URL(target, 'http://x').searchParams;
      // The header arrives as it is; tiles do not.
      if (query.get('proof') !== 'bao' || query.get('offset') === '0') return;
      body[body.length - 1000]! ^= 1;
      flipped += 1;
    });
    await using shown = await show('quarters', proxy.url);
    await shown.page.waitForSelector('#status[data-state=mismatch]', { timeout: 60_000 });
    const { text, verified_bytes } = await shown.shown();
    assert.ok(flipped > 0);
    assert.match(text, /^Verification failed: the server sent bytes that are not those of b3:/);
    assert.equal(await shown.page.locator('#status').getAttribute('role'), 'alert');
    assert.equal(verified_bytes, GROUP);
  });

  test('the address of the fragment wins over the one that the server states', async () => {
    const other = formatAddress(blake3(Buffer.from('another pack')));
    await using shown = await show(`quarters#${other}`);
    const { state, text } = await shown.shown();
    assert.equal(state, 'mismatch');
    assert.ok(text.includes(other));
  });

  test('draws the layers of a vector pack', async () => {
    await using shown = await show('halves');
    const { state } = await shown.shown();
    assert.deepEqual(shown.problems, []);
    assert.equal(state, 'verified');
    const [west, east] = await shown.colourAt([IN_QUARTERS[0], IN_QUARTERS[1]]);
    assertColour(east!, [244, 243, 239], 'the empty half');
    assert.ok(Math.max(...west!) - Math.min(...west!) > 20, `the western half has a colour: ${west!.join(' ')}`);
  });

  test('draws the fixture pm-raster-z3', { skip: noFixture('pm-raster-z3.pmtiles') }, async () => {
    await using shown = await show('world');
    const { state } = await shown.shown();
    assert.deepEqual(shown.problems, []);
    assert.equal(state, 'verified');
    // The fixture shows white land, black sea and grey names.
    const grid = Array.from({ length: 100 }, (_, at) => [25 + (at % 10) * 50, 25 + Math.floor(at / 10) * 43] as const);
    const colours = await shown.colourAt(grid);
    const shareOf = (level: number): number =>
      colours.filter((colour) => colour.every((value) => Math.abs(value - level) < 10)).length / colours.length;
    assert.ok(shareOf(255) > 0.2 && shareOf(0) > 0.2, `land ${shareOf(255)}, sea ${shareOf(0)}`);
  });

  test(
    'an MBTiles pack is drawn, and the page says that it is not verified',
    { skip: noFixture('mb-plain.mbtiles') },
    async () => {
      await using shown = await show('plain');
      const { state, text } = await shown.shown();
      assert.deepEqual(shown.problems, []);
      assert.equal(state, 'unverified');
      assert.match(text, /^Not verified in this page\. MBTiles packs have no proofs/);
    },
  );

  test('a pack that does not exist has no page, and files outside the page are not served', async () => {
    assert.equal((await edge.send('GET', '/edge/map/nothing')).status, 404);
    const { body } = await edge.send('GET', '/edge/map/quarters');
    const files = /\.\/(files\/[^/]+)\//.exec(String(body))![1]!;
    for (const path of ['package.json', 'services/edge/src/service.ts', '..%2f..%2fpackage.json'])
      assert.notEqual((await edge.send('GET', `/edge/map/${files}/${path}`)).status, 200, path);
  });
});

function noFixture(name: string): string | false {
  return fixture(name) === undefined ? `../shared/fixtures/${name} is not beside the project` : false;
}
