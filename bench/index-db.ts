/**
 * The database of the index with a million names and ten million providers. `node bench/index-db.ts [--quick]`
 *
 * Bars: a read under 5 ms (p99, one at a time, and 32 at a time, as many as there are resolvers), opening under 3 s. Times are
 * wall-clock times of the caller; a read of an empty table shows how much of them is the machine. The rows are inserted in the
 * order of their keys, because otherwise filling would take an hour; the rows themselves are the same. The file is opened and
 * read with a warm page cache, and once with an empty one if this process may drop it.
 */
import { hash, randomBytes } from 'node:crypto';
import { createReadStream, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { formatAddress } from '@ron/proto';
import { blake3 } from '@ron/simd';
import { SqliteStore } from '../services/index/src/store/sqlite-store.ts';
import { formatProviderKey } from '../services/index/src/store/thread/provider-key.ts';
import { measure, nsEachAsync, quick, report, scratchDir, type Case } from './lib.ts';

const NAMES = quick ? 100_000 : 1_000_000;
const PROVIDERS = quick ? 500_000 : 10_000_000;
const PEERS = 1000;
const RECORD_BYTES = 180;
const READS = quick ? 5000 : 20_000;
const AT_ONCE = 32;
const REPEATS = quick ? 3 : 5;
const EXPIRES_MS = Date.now() + 48 * 3_600_000;
const QUOTAS = { providers_max: 1e9, providers_per_subject: 1e9, names_seen: 1_000_000 };

const dir = scratchDir('index-db');
const path = join(dir, 'index.db');
const key = randomBytes(32);
const open = (): Promise<SqliteStore> => SqliteStore.open({ dir, quotas: () => QUOTAS, call_ms: 30_000 });

const labelOf = (at: number): string => `docs/${String(at).padStart(9, '0')}/readme`;
/** Ascending with `at`, and different in all bytes. */
function hashOf(at: number): Buffer {
  const bytes = hash('sha256', String(at), 'buffer');
  bytes.writeUInt32BE(Math.floor((at / PROVIDERS) * 2 ** 32), 0);
  return bytes;
}
const peerOf = (at: number): string => `12D3KooW${hash('sha256', String(at % PEERS), 'hex').slice(0, 44)}`;

/** Fills the database without triggers and writes the counters at the end. */
async function fill(): Promise<void> {
  await (await open())[Symbol.asyncDispose]();
  using db = new DatabaseSync(path);
  db.exec('PRAGMA synchronous = OFF; PRAGMA cache_size = -200000');
  const triggers = db.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").all();
  for (const { name } of triggers) db.exec(`DROP TRIGGER ${String(name)}`);
  const expiry = db.prepare("SELECT sql FROM sqlite_schema WHERE name = 'provider_expiry'").get()!['sql'] as string;
  db.exec('DROP INDEX provider_expiry; BEGIN');
  const name = db.prepare(
    'INSERT INTO name (label, key, seq, not_after, record, signature, hash, is_own, is_kept, used) VALUES (?, ?, 1, 2000000000, ?, ?, ?, 1, 1, 0)',
  );
  const [record, signature] = [randomBytes(RECORD_BYTES), randomBytes(64)];
  const digest = blake3(record);
  for (let at = 0; at < NAMES; at++) name.run(labelOf(at), key, record, signature, digest);
  const party = db.prepare('INSERT INTO party (id, name, providers, uses) VALUES (?, ?, ?, ?)');
  for (let at = 0; at < PEERS; at++) party.run(at + 1, peerOf(at), PROVIDERS / PEERS, PROVIDERS / PEERS);
  const provider = db.prepare('INSERT INTO provider VALUES (?, ?, ?, ?, ?)');
  const value = Buffer.from([0x80, 0x80, 0x80, 0x80, 0x80, 0x01]);
  for (let at = 0; at < PROVIDERS; at++) {
    const peer = (at % PEERS) + 1;
    provider.run(hashOf(at), peer, peer, EXPIRES_MS + at, value);
  }
  db.prepare('INSERT INTO signer VALUES (?, ?)').run(key, NAMES);
  db.prepare('UPDATE state SET applied = ?, providers = ?').run(NAMES, PROVIDERS);
  db.exec('COMMIT');
  db.exec(expiry);
  for (const { sql } of triggers) db.exec(sql as string);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
}

const any = (end: number): number => Math.floor(Math.random() * end);

const reads: Record<string, (store: SqliteStore) => Promise<unknown>> = {
  'a name': (store) => store.name(key.toString('hex'), labelOf(any(NAMES))),
  'the providers of an object': (store) => {
    const wanted = formatProviderKey(hashOf(any(PROVIDERS)), '').slice(0, -1);
    return store.dhtQuery(wanted, { now_ms: Date.now(), limit: 20 });
  },
  // The cost of the threads and of a busy machine alone.
  'an empty table (control)': (store) => store.pins(),
  'an own object that is not there': (store) => store.object(formatAddress(randomBytes(32))),
};

/** Calls `call` `count` times, `at_once` at a time; returns the sorted times. */
async function times_ms(count: number, at_once: number, call: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  let left = count;
  const worker = async (): Promise<void> => {
    while (left-- > 0) {
      const begun = performance.now();
      await call();
      times.push(performance.now() - begun);
    }
  };
  await Promise.all(Array.from({ length: at_once }, worker));
  return times.toSorted((a, b) => a - b);
}

const p99 = (times: readonly number[]): number => times[Math.floor(times.length * 0.99)]!;

async function elapsed_ms(run: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await run();
  return performance.now() - begun;
}

function dropCaches(): boolean {
  try {
    writeFileSync('/proc/sys/vm/drop_caches', '1');
    return true;
  } catch {
    return false;
  }
}

/** Reads the file once, so that the page cache has it. */
async function warmUp(): Promise<void> {
  for await (const _ of createReadStream(path, { highWaterMark: 2 ** 20 }));
}

try {
  const fill_ms = await elapsed_ms(fill);
  let store = await open();
  const reopen = async (): Promise<void> => {
    await store[Symbol.asyncDispose]();
    store = await open();
    await store.countObjects();
  };
  const opening: Case = { name: 'open and first read', unit: 'ms', bar: 3000, run: () => elapsed_ms(reopen) };
  const rows = await measure([opening], REPEATS);
  if (dropCaches()) {
    const cold: Case = {
      name: 'open and first read, empty page cache',
      unit: 'ms',
      bar: 3000,
      run: () => (dropCaches(), elapsed_ms(reopen)),
    };
    rows.push(...(await measure([cold], 2)));
    await warmUp();
  }
  const cases = Object.entries(reads).flatMap(([name, read]): Case[] => [
    {
      name: `${name}, p99, ${AT_ONCE} at a time`,
      unit: 'ms',
      bar: 5,
      run: async () => p99(await times_ms(READS, AT_ONCE, () => read(store))),
    },
    {
      name: `${name}, p99, one at a time`,
      unit: 'ms',
      bar: 5,
      run: async () => p99(await times_ms(READS / 10, 1, () => read(store))),
    },
    {
      name: `${name}, CPU of the event loop`,
      unit: 'us',
      run: async () =>
        (await nsEachAsync(READS, async () => void (await times_ms(READS, AT_ONCE, () => read(store))))) / 1000,
    },
  ]);
  rows.push(...(await measure(cases, REPEATS)));
  const put = (): Promise<void> => {
    const init = { subject: peerOf(any(PEERS)), expires_ms: EXPIRES_MS, now_ms: Date.now() };
    return store.dhtPut(formatProviderKey(randomBytes(32), init.subject), randomBytes(6), init);
  };
  const writes: Case[] = [
    {
      name: `put of a provider, ${AT_ONCE} at a time`,
      unit: 'us',
      run: async () => ((await elapsed_ms(() => times_ms(READS / 4, AT_ONCE, put))) / (READS / 4)) * 1000,
    },
    {
      name: 'announcement of 1000 objects, synced',
      unit: 'ms',
      run: () =>
        elapsed_ms(() =>
          store.announce(
            'storage',
            Array.from({ length: 1000 }, () => ({
              address: formatAddress(randomBytes(32)),
              size: 1,
              media_type: 'text/plain',
            })),
            [],
            Date.now(),
          ),
        ),
    },
  ];
  rows.push(...(await measure(writes, REPEATS)));
  const size: Case = {
    name: `size of the file, ${NAMES} names, ${PROVIDERS} providers`,
    unit: 'MiB',
    note: `filled in ${Math.round(fill_ms / 1000)} s`,
    run: () => statSync(path).size / 2 ** 20,
  };
  rows.push(...(await measure([size], 1)));
  await store[Symbol.asyncDispose]();
  report('index-db', 'database of the index', rows);
} finally {
  rmSync(dir, { recursive: true, force: true });
}
