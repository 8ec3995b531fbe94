/** RFC 9111 over HTTP: for each set of headers of an origin, whether the second request is answered by the cache or by the origin. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { answer, originOf, removeFiles, startFilling, type Filling, type Hostile } from '../fill/support.ts';

const DAY_S = 86_400;
const at = (seconds: number): string => new Date(Date.now() + seconds * 1000).toUTCString();

/** `fresh`: answered by the cache. `stale`: revalidated. `unstored`: fetched again. */
type Outcome = 'fresh' | 'stale' | 'unstored';
type Row = readonly [outcome: Outcome, ...headers: string[]];

const ROWS: readonly Row[] = [
  ['fresh', 'cache-control: max-age=60'],
  ['fresh', 'cache-control: public, max-age=60'],
  ['fresh', 'cache-control: MAX-AGE=60'],
  ['fresh', 'cache-control: max-age="60"'],
  ['fresh', 'cache-control: max-age=60, must-revalidate'],
  ['fresh', 'cache-control: max-age=99999999999'],
  ['fresh', 'cache-control: max-age=60', 'age: 30'],
  ['fresh', 'cache-control: max-age=60', 'age: 1, 100'],
  ['fresh', 'cache-control: max-age=60', 'age: -100'],
  ['fresh', 'cache-control: s-maxage=60'],
  ['fresh', 'cache-control: s-maxage=60, max-age=0'],
  ['fresh', 'cache-control: max-age=60', `expires: ${at(-DAY_S)}`],
  ['fresh', 'cache-control: max-age=60', 'vary: Accept-Encoding'],
  ['fresh', `expires: ${at(DAY_S)}`],
  ['fresh', `expires: ${at(DAY_S)}`, `date: ${at(0)}`],
  ['fresh', `last-modified: ${at(-100 * DAY_S)}`],
  ['fresh', 'cache-control: immutable, max-age=60'],
  ['fresh', 'cache-control: unknown, max-age=60'],
  ['fresh', 'cache-control: max-age=60', 'pragma: no-cache'],
  ['stale'],
  ['stale', 'cache-control: max-age=0'],
  ['stale', 'cache-control: no-cache'],
  ['stale', 'cache-control: no-cache, max-age=60'],
  ['stale', 'cache-control: max-age=60', 'age: 60'],
  ['stale', 'cache-control: max-age=60', 'age: 3600'],
  ['stale', 'cache-control: max-age=3600, s-maxage=0'],
  ['stale', 'cache-control: max-age=soon'],
  ['stale', 'cache-control: max-age=-1'],
  ['stale', 'cache-control: max-age=1.5'],
  ['stale', 'cache-control: max-age=60, max-age=0'],
  ['stale', 'cache-control: max-age=60', `date: ${at(-120)}`],
  ['stale', `expires: ${at(-1)}`],
  ['stale', 'expires: 0'],
  ['stale', 'expires: never'],
  ['stale', `expires: ${at(60)}`, `date: ${at(60)}`],
  ['stale', 'cache-control: public'],
  ['stale', 'cache-control: must-revalidate'],
  ['stale', 'cache-control: max-age=60', 'age: 2147483648'],
  ['stale', 'cache-control: max-age=60', 'age: 99999999999999999999'],
  ['stale', 'cache-control: max-age=60', 'age: 100, 1'],
  ['stale', 'cache-control: max-age=60', 'age: 100', 'age: 1'],
  ['unstored', 'cache-control: no-store'],
  ['unstored', 'cache-control: no-store, max-age=60'],
  ['unstored', 'cache-control: private, max-age=60'],
  ['unstored', 'cache-control: PRIVATE'],
  ['unstored', 'cache-control: private="x-header", max-age=60'],
  ['unstored', 'cache-control: max-age=60; private'],
  ['unstored', 'cache-control: max-age=60, private="set-cookie'],
];

let origin: Hostile;
let services: readonly Filling[] = [];
before(async () => {
  origin = await originOf((socket, head) => {
    const [, index] = /^GET \/(\d+)/.exec(head)!;
    if (/^if-none-match: /im.test(head)) socket.write('HTTP/1.1 304 Not Modified\r\netag: "1"\r\n\r\n');
    else socket.write(answer(`body ${index}`, ...ROWS[Number(index)]!.slice(1)));
  });
  services = [await startFilling(origin), await startFilling(origin, { flags: ['--edge.fast_path=false'] })];
});
after(async () => {
  for (const service of services) await service[Symbol.asyncDispose]();
  await origin[Symbol.asyncDispose]();
  await removeFiles();
});

for (const [index, [outcome, ...headers]] of ROWS.entries()) {
  test(`${outcome}: ${headers.join(', ') || 'no header'}`, async () => {
    for (const service of services) {
      const path = `/${index}.png`;
      const first = await service.get(path);
      assert.equal(first.status, 200, first.text);
      const stored = outcome !== 'unstored';
      assert.match(
        statusOf(first),
        stored ? /^ron-edge; fwd=miss; stored(?:; ttl=-?\d+)?$/ : /^ron-edge; fwd=miss(?:; ttl=-?\d+)?$/,
      );
      assert.ok(Number(first.headers['age']) >= 0);
      const key = service.pathOf(path).slice('/edge/assets/'.length);
      if (stored) await eventually('it is kept', async () => (await service.edge.cache.find(key, NEVER)) !== undefined);
      const second = await service.get(path);
      assert.equal(second.status, 200);
      assert.equal(second.text, `body ${index}`);
      assert.match(statusOf(second), SECOND[outcome]);
      assert.equal(second.headers['content-security-policy'], 'sandbox');
      const cached = await service.get(path, { 'cache-control': 'max-stale, only-if-cached' });
      if (outcome === 'fresh') assert.equal(cached.status, 200);
      if (outcome === 'unstored') assert.equal(cached.status, 504);
    }
  });
}

const SECOND: Readonly<Record<Outcome, RegExp>> = {
  fresh: /^ron-edge; hit; detail=(?:ram|cas); ttl=\d+$/,
  stale: /^ron-edge; fwd=stale; fwd-status=304(?:; stored)?(?:; ttl=-?\d+)?$/,
  unstored: /^ron-edge; fwd=miss(?:; ttl=-?\d+)?$/,
};

const statusOf = ({ headers }: { readonly headers: NodeJS.Dict<string | string[]> }): string =>
  String(headers['cache-status']);

test('a stale asset is answered in offline mode, unless its origin forbids it, and a missing one is not', async () => {
  await using service = await startFilling(origin);
  const row = (wanted: string): number => ROWS.findIndex(([, ...headers]) => headers.includes(wanted));
  const allowed = `/${row('cache-control: max-age=0')}.png`;
  const forbidden = `/${row('cache-control: no-cache')}.png`;
  for (const path of [allowed, forbidden]) {
    assert.equal((await service.get(path)).status, 200);
    const key = service.pathOf(path).slice('/edge/assets/'.length);
    await eventually('it is kept', async () => (await service.edge.cache.find(key, NEVER)) !== undefined);
  }
  await service.reload(['--edge.mode=offline', '--ingress.rps_limit=100000']);
  const stale = await service.get(allowed);
  assert.equal(stale.status, 200);
  assert.match(statusOf(stale), /^ron-edge; hit; detail=(?:ram|cas); ttl=-?\d+$/);
  assert.equal((await service.get(forbidden)).status, 504);
  assert.equal((await service.get('/999.png')).status, 403);
});
