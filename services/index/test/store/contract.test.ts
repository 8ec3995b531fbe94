/** The contract of the database, in a file and in memory. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { tempDir, type TempDir } from '@ron/testkit';
import { supersedes } from '../../src/store/record-order.ts';
import type { SqliteStore } from '../../src/store/sqlite-store.ts';
import {
  addressOf,
  DAY_MS,
  digest,
  empty,
  KEY,
  newKeys,
  NOW_MS,
  openStore,
  OTHER_KEY,
  position,
  providerKeyOf,
  published,
  recordOf,
} from './support.ts';

const refusedBy = (code: string, reason?: string) => (error: unknown) =>
  isRonError(error) && error.code === code && error.reason === reason;
const LATER = { subject: 's', expires_ms: NOW_MS + DAY_MS, now_ms: NOW_MS };
const seen = (replaces?: Uint8Array, isTrusted = false): { isTrusted: boolean; replaces: Uint8Array | undefined } => ({
  isTrusted,
  replaces,
});

for (const kind of ['file', 'memory'] as const) {
  describe(`in ${kind === 'file' ? 'a file' : 'memory'}`, () => {
    let temp: TempDir;
    let shared: SqliteStore;
    before(async () => {
      temp = await tempDir();
      shared = await openStore(kind === 'file' ? temp.path : undefined);
    });
    after(async () => {
      await shared[Symbol.asyncDispose]();
      await temp[Symbol.asyncDispose]();
    });
    /** An empty database. */
    async function withStore(use: (store: SqliteStore) => Promise<void>): Promise<void> {
      newKeys();
      await empty(shared);
      await use(shared);
    }

    test('a published record becomes current, and the former one history', () =>
      withStore(async (store) => {
        assert.equal(await store.name(KEY, 'a'), undefined);
        await store.apply([published('a', 1), published('a', 2), published('b', 1)], position(3));
        assert.deepEqual(store.applied, position(3));
        const name = (await store.name(KEY, 'a'))!;
        assert.deepEqual(name, { ...recordOf('a', 2), isOwn: true, dropped: 0, rival: undefined });
        assert.deepEqual(await store.history(KEY, 'a', 10), [recordOf('a', 1)]);
        assert.deepEqual(await store.highestSeq(KEY, 'a'), { seq: 2, hash: recordOf('a', 2).hash });
        assert.equal(await store.name(OTHER_KEY, 'a'), undefined);
        assert.equal(await store.countNames(KEY), 2);
        assert.equal(await store.countNames(OTHER_KEY), 0);
      }));

    test('entries of the log are applied once and without a gap', () =>
      withStore(async (store) => {
        await store.apply([published('a', 1)], position(1));
        await store.apply([published('b', 1), published('c', 1)], position(2));
        assert.equal(await store.name(KEY, 'b'), undefined, 'the first of the two was applied before');
        assert.notEqual(await store.name(KEY, 'c'), undefined);
        await store.apply([published('d', 1)], position(1));
        assert.equal(await store.name(KEY, 'd'), undefined);
        await assert.rejects(store.apply([published('d', 1)], position(4)), refusedBy('conflict', 'gap'));
        assert.deepEqual(store.applied, position(2));
      }));

    test('a fork keeps both records until the next clean one', () =>
      withStore(async (store) => {
        const [one, two] = [recordOf('a', 2, { salt: '1' }), recordOf('a', 2, { salt: '2' })];
        const [winner, loser] = supersedes(one, two) ? [one, two] : [two, one];
        for (const [at, first] of [one, two].entries()) {
          const label = `a${at}`;
          const [x, y] = [first, first === one ? two : one].map((record) => ({ ...record, label }));
          await store.apply(
            [
              { kind: 'name', record: x! },
              { kind: 'name', record: y! },
            ],
            position(2 * at + 2),
          );
          const name = (await store.name(KEY, label))!;
          assert.deepEqual([name.hash, name.rival?.hash], [winner.hash, loser.hash], 'the smaller hash is current');
        }
        await store.apply([{ kind: 'fork', record: winner, rival: loser }], position(5));
        assert.deepEqual((await store.name(KEY, 'a'))?.rival, loser);
        await store.apply([{ kind: 'name', record: recordOf('a', 1) }], position(6));
        assert.deepEqual((await store.name(KEY, 'a'))?.rival, loser, 'a lower seq changes nothing');
        await store.apply([published('a', 3)], position(7));
        assert.equal((await store.name(KEY, 'a'))?.rival, undefined);
        await store.apply([{ kind: 'fork', record: winner, rival: loser }], position(8));
        assert.equal((await store.name(KEY, 'a'))?.seq, 3, 'a fork below the current seq changes nothing');
      }));

    test('the history keeps the newest 64 records and counts the others', () =>
      withStore(async (store) => {
        const changes = Array.from({ length: 70 }, (_, at) => published('a', at + 1));
        await store.apply(changes, position(70));
        const history = await store.history(KEY, 'a', 100);
        assert.deepEqual([history.length, history[0]!.seq, history.at(-1)!.seq], [64, 69, 6]);
        assert.equal((await store.name(KEY, 'a'))!.dropped, 5);
        assert.equal((await store.history(KEY, 'a', 3)).length, 3);
      }));

    test('a seen name is swapped only against the record that the caller knew', () =>
      withStore(async (store) => {
        const [one, two] = [recordOf('a', 1), recordOf('a', 2)];
        assert.equal(await store.saveSeen(one, undefined, seen(digest('x'))), false);
        assert.equal(await store.saveSeen(one, undefined, seen()), true);
        assert.equal(await store.saveSeen(two, undefined, seen()), false);
        assert.equal(await store.saveSeen(two, one, seen(one.hash)), true);
        assert.deepEqual((await store.name(KEY, 'a'))?.rival, one);
        assert.equal(await store.saveSeen(one, undefined, seen(two.hash)), false, 'the seq never falls');
        assert.equal(await store.saveSeen(two, undefined, seen(two.hash)), true);
        assert.equal((await store.name(KEY, 'a'))?.rival, undefined);
        assert.equal((await store.name(KEY, 'a'))?.isOwn, false);
      }));

    test('names of others are an LRU; own and trusted names are never forgotten', () =>
      withStore(async (store) => {
        await store.apply([published('own', 1)], position(1));
        await store.saveSeen(recordOf('trusted', 1), undefined, seen(undefined, true));
        for (let at = 0; at < 12; at++) {
          await store.saveSeen(recordOf(`n${at}`, 1), undefined, seen());
          // n0 stays in use.
          await store.saveSeen(recordOf('n0', 1), undefined, seen(recordOf('n0', 1).hash));
        }
        const known = async (label: string): Promise<boolean> => (await store.highestSeq(KEY, label)) !== undefined;
        assert.deepEqual(await Promise.all(['own', 'trusted', 'n0', 'n11', 'n3'].map(known)), [
          true,
          true,
          true,
          true,
          true,
        ]);
        assert.deepEqual(await Promise.all(['n1', 'n2'].map(known)), [false, false]);
      }));

    test('lists own names below a prefix of whole segments, in pages', () =>
      withStore(async (store) => {
        const labels = ['docs', 'docs-old', 'docs.x', 'docs/a', 'docs/b/c', 'docsx', 'z'];
        const changes = labels.flatMap((label) => [published(label, 1), published(label, 1, { key: OTHER_KEY })]);
        await store.apply(changes, position(changes.length));
        await store.saveSeen(recordOf('docs/seen', 1), undefined, seen());
        const walk = async (prefix: string): Promise<string[]> => {
          const found: string[] = [];
          for (let last: { label: string; key: string } | undefined; ;) {
            const page = await store.names(prefix, last, 3);
            found.push(...page.map(({ label, key }) => `${label}@${key[0]}`));
            last = page.at(-1);
            if (last === undefined) return found;
          }
        };
        const both = (...wanted: string[]): string[] => wanted.flatMap((label) => [`${label}@a`, `${label}@b`]);
        assert.deepEqual(await walk(''), both(...labels));
        assert.deepEqual(await walk('docs'), both('docs', 'docs/a', 'docs/b/c'));
        assert.deepEqual(await walk('docs/b'), both('docs/b/c'));
        assert.deepEqual(await walk('nothing'), []);
      }));

    test('resetLog forgets trust, pins and ownership, and keeps signed records', () =>
      withStore(async (store) => {
        await store.apply(
          [
            published('a', 1),
            published('a', 2),
            { kind: 'trust', prefix: '', key: KEY },
            { kind: 'trust', prefix: 'docs', key: OTHER_KEY },
            { kind: 'pin', target: 'name:a', isPinned: true },
            { kind: 'pin', target: 'name:b', isPinned: true },
            { kind: 'admin', action: 'reindex' },
          ],
          position(7),
        );
        await store.apply(
          [
            { kind: 'trust', prefix: 'docs', key: undefined },
            { kind: 'pin', target: 'name:b', isPinned: false },
          ],
          position(9),
        );
        assert.deepEqual(await store.trust(), [{ prefix: '', key: KEY }]);
        assert.deepEqual(await store.pins(), ['name:a']);
        await store.resetLog();
        assert.deepEqual(store.applied, position(0));
        assert.deepEqual([await store.trust(), await store.pins(), await store.names('', undefined, 9)], [[], [], []]);
        assert.equal(await store.countNames(KEY), 0);
        assert.equal((await store.highestSeq(KEY, 'a'))?.seq, 2, 'an older log cannot undo it');
        assert.equal(store.problem, undefined);
        await store.apply([published('a', 1)], position(1));
        assert.equal((await store.names('', undefined, 9))[0]?.seq, 2);
        assert.equal(await store.countNames(KEY), 1);
      }));

    test('a new epoch differs and stays', () =>
      withStore(async (store) => {
        const former = store.epoch;
        const epoch = await store.newEpoch();
        assert.notEqual(epoch, former);
        assert.equal(store.epoch, epoch);
        assert.match(epoch, /^[0-9a-f]{32}$/);
      }));

    test('announcements are idempotent, and ordered by their position for the sweep', () =>
      withStore(async (store) => {
        const entries = Array.from({ length: 20 }, (_, at) => ({
          address: addressOf(`o${at}`),
          size: at,
          media_type: at % 2 === 0 ? 'text/plain' : 'application/octet-stream',
        }));
        for (const added of [entries.map(({ address }) => address), []]) {
          const announced = await store.announce('s', entries, [addressOf('none')], NOW_MS);
          assert.deepEqual(announced, { added, withdrawn: [] });
        }
        assert.equal(await store.countObjects(), 20);
        assert.deepEqual(await store.object(addressOf('o3')), { ...entries[3], announced_ms: NOW_MS });
        assert.deepEqual(await store.object(addressOf('o4')), { ...entries[4], announced_ms: NOW_MS });
        const swept: string[] = [];
        let cursor: Uint8Array | undefined;
        for (;;) {
          const page = await store.objects(cursor, 7);
          if (page.length === 0) break;
          for (const { routing_key, address } of page) {
            assert.ok(cursor === undefined || Buffer.compare(routing_key, cursor) > 0);
            cursor = routing_key;
            swept.push(address);
          }
        }
        assert.deepEqual(swept.toSorted(), entries.map(({ address }) => address).toSorted());
        await store.announce('s', [], [addressOf('o3'), addressOf('o3')], NOW_MS);
        assert.equal(await store.object(addressOf('o3')), undefined);
        assert.equal(await store.countObjects(), 19);
      }));

    test('a range withdraws the other objects of the subject in it', () =>
      withStore(async (store) => {
        const sorted = Array.from({ length: 9 }, (_, at) => addressOf(`o${at}`)).toSorted();
        const entryOf = (address: (typeof sorted)[number]) => ({ address, size: 1, media_type: 'text/plain' });
        await store.announce('s', sorted.slice(0, 8).map(entryOf), [], NOW_MS);
        await store.announce('t', [entryOf(sorted[8]!)], [], NOW_MS);
        const left = async (): Promise<number[]> => {
          const found = await Promise.all(sorted.map((address) => store.object(address)));
          return found.flatMap((object, at) => (object === undefined ? [] : [at]));
        };
        const range = { after: sorted[1]!, through: sorted[5]! };
        const { withdrawn } = await store.announce('s', [entryOf(sorted[3]!)], [], NOW_MS, range);
        assert.deepEqual(withdrawn, [sorted[2], sorted[4], sorted[5]]);
        assert.deepEqual(await left(), [0, 1, 3, 6, 7, 8], 'after is exclusive, through inclusive');
        await store.announce('s', [], [], NOW_MS, { after: null, through: sorted[0]! });
        assert.deepEqual(await left(), [1, 3, 6, 7, 8]);
        await store.announce('s', [], [], NOW_MS, { after: null, through: null });
        assert.deepEqual(await left(), [8], 'objects of another subject stay');
      }));

    test('an announcement beyond the quota changes nothing, and peers do not use it up', () =>
      withStore(async (store) => {
        const many = (from: number, count: number) =>
          Array.from({ length: count }, (_, at) => ({
            address: addressOf(`o${from + at}`),
            size: 1,
            media_type: 'x/y',
          }));
        await store.dhtPut(providerKeyOf('x', 'p'), Uint8Array.of(1), LATER);
        await store.announce('s', many(0, 500), [], NOW_MS);
        await store.announce('t', many(500, 500), [], NOW_MS);
        await assert.rejects(store.announce('s', many(999, 2), [], NOW_MS), refusedBy('storage_full', 'quota'));
        assert.equal(await store.object(addressOf('o1000')), undefined);
        await store.announce('s', many(0, 500), [], NOW_MS + 1);
        await store.announce('s', many(1000, 1), [addressOf('o0')], NOW_MS);
        assert.equal(await store.countObjects(), 1000);
      }));

    test('entries of the DHT are found by key and prefix until they expire', () =>
      withStore(async (store) => {
        const [key1, key2] = [providerKeyOf('x', 'peer1'), providerKeyOf('x', 'peer2')];
        const value = Uint8Array.of(1, 2, 3);
        await store.dhtPut(key1, value, LATER);
        await store.dhtPut(key2, value, { ...LATER, expires_ms: NOW_MS + 1 });
        await store.dhtPut(providerKeyOf('y', 'peer1'), value, LATER);
        await store.dhtPut('/dht/record/abc', value, LATER);
        assert.deepEqual(await store.dhtGet(key1, NOW_MS), value);
        const query = async (prefix: string, now_ms = NOW_MS, limit = 10): Promise<string[]> =>
          (await store.dhtQuery(prefix, { now_ms, limit })).map(({ key }) => key);
        const ofX = key1.slice(0, -'/peer1'.length);
        assert.deepEqual((await query(ofX)).toSorted(), [key1, key2]);
        assert.equal((await query(ofX, NOW_MS, 1)).length, 1);
        assert.deepEqual(await query(key2), [key2]);
        assert.deepEqual(await query(ofX, NOW_MS + 1), [key1], 'one has expired');
        assert.equal(await store.dhtGet(key2, NOW_MS + 1), undefined);
        assert.equal((await query('/dht/provider')).length, 3);
        assert.equal((await query('/')).length, 4);
        assert.deepEqual(await query('/dht/record'), ['/dht/record/abc']);
        assert.equal(await store.purgeExpired(NOW_MS + 1, 10), 1);
        assert.equal(await store.purgeExpired(NOW_MS + 1, 10), 0);
        await store.dhtDelete(key1);
        await store.dhtDelete('/dht/record/abc');
        assert.deepEqual(await query('/'), [providerKeyOf('y', 'peer1')]);
      }));

    test('no provider is hidden by those that announced before or after it', () =>
      withStore(async (store) => {
        const peers = Array.from({ length: 9 }, (_, at) => `peer${at}`);
        for (const peer of peers) await store.dhtPut(providerKeyOf('x', peer), Uint8Array.of(1), LATER);
        const prefix = providerKeyOf('x', '').slice(0, -1);
        const returned = new Set<string>();
        // A peer is missed with a probability of (2/3)^100.
        for (let i = 0; i < 100; i++) {
          const rows = await store.dhtQuery(prefix, { now_ms: NOW_MS, limit: 3 });
          assert.equal(rows.length, 3);
          for (const { key } of rows) returned.add(key.slice(prefix.length + 1));
        }
        assert.deepEqual([...returned].toSorted(), peers);
      }));

    test('entries of the DHT stay within the quotas; expired ones make room', () =>
      withStore(async (store) => {
        const put = (at: number, subject: string, expires_ms = LATER.expires_ms): Promise<void> =>
          store.dhtPut(providerKeyOf(`p${at}`, subject), Uint8Array.of(at), {
            subject,
            expires_ms,
            now_ms: NOW_MS + 2,
          });
        await Promise.all(Array.from({ length: 100 }, (_, at) => put(at, 's', at === 0 ? NOW_MS + 3 : undefined)));
        await assert.rejects(put(100, 's'), refusedBy('storage_full', 'quota'));
        await put(99, 's');
        await store.dhtPut(providerKeyOf('p100', 's'), Uint8Array.of(1), { ...LATER, now_ms: NOW_MS + 3 });
        for (let subject = 0; subject < 9; subject++) {
          await Promise.all(Array.from({ length: 100 }, (_, at) => put(at, `t${subject}`)));
        }
        await assert.rejects(put(0, 'u'), refusedBy('storage_full', 'quota'), 'in total');
        await store.dhtDelete(providerKeyOf('p5', 't5'));
        await put(0, 'u');
      }));

    test('[index I-9] name records and known peers have quotas of their own: no kind displaces another', () =>
      withStore(async (store) => {
        const put = (key: string, subject: string): Promise<void> =>
          store.dhtPut(key, Uint8Array.of(1), { ...LATER, subject });
        // A tenth of `names_seen` for each peer, as of `providers_max`.
        await put('/dht/record/a', 's');
        await assert.rejects(put('/dht/record/b', 's'), refusedBy('storage_full', 'quota'));
        await put('/dht/record/a', 's');
        for (let at = 1; at < 10; at++) await put(`/dht/record/of${at}`, `s${at}`);
        await assert.rejects(put('/dht/record/b', 'other'), refusedBy('storage_full', 'quota'));
        await put(providerKeyOf('x', 's'), 's');
        await put('/peers/s', '/peers/s');
        await store.dhtDelete('/dht/record/a');
        await put('/dht/record/b', 's');
      }));

    test('cursors are kept and removed', () =>
      withStore(async (store) => {
        assert.equal(await store.readCursor('sweep'), undefined);
        await store.saveCursor('sweep', Uint8Array.of(1));
        await store.saveCursor('sweep', Uint8Array.of(2));
        assert.deepEqual(await store.readCursor('sweep'), Uint8Array.of(2));
        await store.saveCursor('sweep', undefined);
        assert.equal(await store.readCursor('sweep'), undefined);
      }));
  });
}
