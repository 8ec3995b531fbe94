/** After damage of the log or the store, the operator accepts it, and a new log begins that records the acceptance. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { cp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { dirSource, isSuccessor, verifyLog } from '@ron/tlog';
import { startWitness } from '@ron/tlog/testing';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, startService, type TestKms } from './support.ts';

const sign = (kms: TestKms, kid: string): Promise<Reply> =>
  kms.post('/sign', { kid, payload_b3: B3, wait: 'checkpoint' });

interface Site {
  readonly dir: string;
  /** The data before the last operations. */
  readonly copy: string;
  readonly kid: string;
  readonly origin: string;
}

const cleanUps = new AsyncDisposableStack();
after(() => cleanUps.disposeAsync());
let made: Promise<Site> | undefined;

/** A stopped kms that was used, and a copy of its data from before the last use. Made once and copied. */
async function site(temp: string): Promise<Site> {
  made ??= tempDir().then((shared) => makeSite(cleanUps.use(shared).path));
  const { dir, copy, ...facts } = await made;
  const own = { dir: join(temp, 'data'), copy: join(temp, 'copy') };
  await cp(dir, own.dir, { recursive: true });
  await cp(copy, own.copy, { recursive: true });
  return { ...own, ...facts };
}

async function makeSite(temp: string): Promise<Site> {
  const [dir, copy] = [join(temp, 'data'), join(temp, 'copy')];
  const kid = await session(dir, async (kms) => {
    const created = await kms.create('ed25519');
    assert.equal((await sign(kms, created)).status, 200);
    return created;
  });
  await cp(dir, copy, { recursive: true });
  const origin = await session(dir, async (kms) => {
    for (let at = 0; at < 3; at++) assert.equal((await sign(kms, kid)).status, 200);
    return (await kms.get('/audit/keys')).json.origin as string;
  });
  return { dir, copy, kid, origin };
}

async function session<T>(dir: string, work: (kms: TestKms) => Promise<T>, flags: string[] = []): Promise<T> {
  await using kms = await startService({ dir, flags });
  const result = await work(kms);
  await kms.kms.drain();
  return result;
}

async function restore({ dir, copy }: Site, part: string): Promise<void> {
  await rm(join(dir, part), { recursive: true });
  await cp(join(copy, part), join(dir, part), { recursive: true });
}

const statusOf = async (kms: TestKms): Promise<Record<string, unknown>> => (await kms.get('/audit/status')).json;

async function accept(kms: TestKms, reason = 'looked at it'): Promise<Reply> {
  const { problem_sha256 } = await statusOf(kms);
  return await kms.post('/audit/accept', { problem_sha256, reason });
}

/** The entries of the log of a running kms. */
async function entriesOf(kms: TestKms): Promise<Record<string, unknown>[]> {
  const log = kms.kms.vault.log!;
  const entries = Array.from({ length: log.size }, async (_, index) => (await log.entry(index)).toString());
  return (await Promise.all(entries)).map(
    (text) => JSON.parse(Buffer.from(text).toString()) as Record<string, unknown>,
  );
}

async function assertVerifies(dir: string): Promise<void> {
  const vkeys = (await readFile(join(dir, 'vkeys'), 'utf8')).trim().split('\n');
  await using source = await dirSource(dir);
  assert.equal((await verifyLog(source, vkeys, { signal: NEVER })).ok, true, dir);
}

const damages: Readonly<Record<string, (at: Site, temp: string) => Promise<void>>> = {
  'an older log': (at) => restore(at, 'audit'),
  'a missing log': ({ dir }) => rm(join(dir, 'audit'), { recursive: true }),
  'a truncated log': ({ dir }) => truncate(join(dir, 'audit/entries'), 300),
  'a checkpoint with a flipped byte': async ({ dir }) => {
    const path = join(dir, 'audit/checkpoint');
    const bytes = await readFile(path);
    bytes[bytes.length - 20]! ^= 1;
    await writeFile(path, bytes);
  },
  'the log of another node': async ({ dir }, temp) => {
    const other = await makeSite(join(temp, 'other'));
    await rm(join(dir, 'audit'), { recursive: true });
    await cp(join(other.dir, 'audit'), join(dir, 'audit'), { recursive: true });
  },
  'an older store': (at) => restore(at, 'vault'),
};

for (const [what, plant] of Object.entries(damages))
  test(`${what}: accepted, and the next start signs in a new log`, async () => {
    await using temp = await tempDir();
    const at = await site(temp.path);
    const { dir, kid, origin } = at;
    await plant(at, temp.path);
    let verified_ms = 0;
    const damaged_ms = Date.now();
    const { next, problem } = await session(dir, async (kms) => {
      const status = await statusOf(kms);
      assert.equal(status['origin'], origin);
      assertRefusal(await kms.post('/audit/accept', { problem_sha256: '0'.repeat(64), reason: 'x' }), 409, 'conflict');
      const sigs = [{ alg: 'ed25519', signature_b64: Buffer.alloc(64).toString('base64') }];
      assert.equal((await kms.post('/verify', { kid, payload_b3: B3, sigs })).status, 200);
      verified_ms = Date.now();
      const answer = await accept(kms);
      assert.equal(answer.status, 202, answer.text);
      const { next_origin } = answer.json as { next_origin: string };
      const archive = what === 'a missing log' ? {} : { archive: 'audit.1' };
      assert.deepEqual(answer.json, { next_origin, ...archive });
      assert.ok(isSuccessor(origin, next_origin), next_origin);
      assert.deepEqual((await accept(kms)).json, answer.json, 'a second call changes nothing');
      assert.equal((await statusOf(kms))['next_origin'], next_origin);
      assertRefusal(await sign(kms, kid), 503, 'audit_integrity');
      return { next: next_origin, problem: status['problem'] as string };
    });
    await session(dir, async (kms) => {
      assert.equal((await sign(kms, kid)).status, 200);
      assert.deepEqual(await statusOf(kms), { origin: next, ...pick(await statusOf(kms), 'known', 'found') });
      const [first, ...rest] = await entriesOf(kms);
      const { time_ms, known, found, actor, ...facts } = first!;
      assert.deepEqual(facts, {
        op: 'accept',
        former: origin,
        problem,
        reason: 'looked at it',
        subject: facts['subject'],
        chain: [],
      });
      assert.ok(typeof actor === 'string' && typeof time_ms === 'number');
      assert.ok(known === null || typeof (known as { size: number }).size === 'number');
      assert.ok(found === null || typeof (found as { size: number }).size === 'number');
      const { op, from, to } = rest[0]!;
      assert.ok(op === 'interrupted' && Number(from) <= damaged_ms && Number(to) >= verified_ms, 'the time is marked');
      assert.ok(
        rest.every(({ op: later }) => later !== 'accept'),
        'it is recorded once',
      );
      assertRefusal(await kms.post('/audit/accept', { problem_sha256: '0'.repeat(64), reason: 'x' }), 409, 'conflict');
    });
    await assertVerifies(join(dir, 'audit'));
    const archived = (await readdir(dir)).filter((name) => name.startsWith('audit.'));
    assert.deepEqual(archived, what === 'a missing log' ? [] : ['audit.1']);
    if (what === 'an older log' || what === 'an older store') await assertVerifies(join(dir, 'audit.1'));
  });

const pick = (from: Record<string, unknown>, ...names: string[]): Record<string, unknown> =>
  Object.fromEntries(names.filter((name) => name in from).map((name) => [name, from[name]]));

test('only a capability with kms:audit sees and accepts damage', async () => {
  await using temp = await tempDir();
  const at = await site(temp.path);
  await restore(at, 'audit');
  await session(at.dir, async (kms) => {
    const other = await kms.allow({ scopes: ['kms:read', 'kms:sign', 'kms:delete', 'kms:rotate'] });
    const { problem_sha256 } = await statusOf(kms);
    assertRefusal(await kms.get('/audit/status', other), 403, 'forbidden');
    assertRefusal(await kms.post('/audit/accept', { problem_sha256, reason: 'x' }, other), 403, 'forbidden');
    for (const body of [
      {},
      { problem_sha256 },
      { problem_sha256, reason: '' },
      { problem_sha256, reason: 'x'.repeat(2000) },
    ])
      assert.equal((await kms.post('/audit/accept', body)).status, 400);
  });
});

test('a name is never used twice, even after a restore of the store or of all data to before an acceptance', async () => {
  await using temp = await tempDir();
  const at = await site(temp.path);
  const { dir, copy, kid, origin } = at;
  await restore(at, 'audit');
  const names: string[] = [];
  const acceptNow = (): Promise<void> =>
    session(dir, async (kms) => {
      const { next_origin, archive } = (await accept(kms)).json as { next_origin: string; archive: string };
      assert.ok(isSuccessor(origin, next_origin) && !names.includes(next_origin), `${next_origin}: ${names.join()}`);
      assert.equal(archive, `audit.${names.push(next_origin)}`);
    });
  await acceptNow();
  await session(dir, async (kms) => assert.equal((await sign(kms, kid)).status, 200));
  await restore(at, 'vault');
  await acceptNow();
  await session(dir, async (kms) => {
    assert.equal((await sign(kms, kid)).status, 200);
    assert.notEqual((await entriesOf(kms))[0]!['found'], null, 'the log of the lost acceptance was read');
  });
  // A restore of all data removes every record of the earlier names.
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  await rm(join(dir, 'audit'), { recursive: true });
  await session(dir, async (kms) => {
    const { next_origin } = (await accept(kms)).json as { next_origin: string };
    assert.ok(isSuccessor(origin, next_origin) && !names.includes(next_origin));
  });
});

test('a rollback of everything that a witness reports is accepted, and the witness cosigns the new log', async () => {
  await using temp = await tempDir();
  const { dir, copy, kid, origin } = await site(temp.path);
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  await using witness = await startWitness(origin, vkeys);
  const flags = [
    `--audit.witness_url=${witness.url}`,
    `--audit.witness_key=${witness.vkey}`,
    '--egress.networks=127.0.0.0/8',
  ];
  const cosigned = (kms: TestKms): Promise<void> =>
    eventually('the checkpoint is cosigned', async () => (await kms.metric('kms_witness_age_seconds')) === 0);
  await session(dir, cosigned, flags);
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  await session(
    dir,
    async (kms) => {
      assertRefusal(await sign(kms, kid), 503, 'audit_integrity');
      assert.equal((await accept(kms)).status, 202);
    },
    flags,
  );
  await session(
    dir,
    async (kms) => {
      assert.equal((await sign(kms, kid)).status, 200);
      await cosigned(kms);
      const { text } = await kms.get('/audit/checkpoint');
      assert.ok(isSuccessor(origin, text.split('\n', 1)[0]!) && text.includes('witness.example/w1'), text);
    },
    flags,
  );
});

/** A disk on which every change from the `nth` on fails, as if the process had been killed before it. */
function killedAt(nth: number): FileSystem & { readonly calls: number } {
  let calls = 0;
  const counted = <A extends unknown[], R>(call: (...args: A) => Promise<R>) => {
    return async (...args: A): Promise<R> => {
      calls += 1;
      if (calls > nth) throw Object.assign(new Error('killed'), { code: 'EIO' });
      return await call(...args);
    };
  };
  const wrapped = async (opening: Promise<File>): Promise<File> => {
    const file = await opening;
    return {
      write: counted((buffers, position) => file.write(buffers, position)),
      sync: counted(() => file.sync()),
      truncate: counted((bytes) => file.truncate(bytes)),
      read: (into, length, position) => file.read(into, length, position),
      size: () => file.size(),
      close: () => file.close(),
    };
  };
  const fs = realFileSystem;
  return {
    create: counted((path) => wrapped(fs.create(path))),
    open: (path, access) => wrapped(fs.open(path, access)),
    list: (dir) => fs.list(dir),
    makeDir: counted((dir) => fs.makeDir(dir)),
    remove: counted((path) => fs.remove(path)),
    rename: counted((from, to) => fs.rename(from, to)),
    syncDir: counted((dir) => fs.syncDir(dir)),
    lock: (path) => fs.lock!(path),
    get calls() {
      return calls;
    },
  };
}

test('killed before any disk call of the accepting start: the next start has accepted, once', async () => {
  await using temp = await tempDir();
  const at = await site(temp.path);
  const { dir, kid } = at;
  await restore(at, 'audit');
  const next = await session(dir, async (kms) => (await accept(kms)).json.next_origin as string);
  const whole = killedAt(Infinity);
  await cp(dir, join(temp.path, 'whole'), { recursive: true });
  await startService({ dir: join(temp.path, 'whole'), fs: whole }).then((kms) => kms[Symbol.asyncDispose]());
  const roots = new Set<string>();
  // The first calls carry out the acceptance; later ones are those of any start.
  for (let nth = 0; nth < Math.min(whole.calls, 24); nth++) {
    const again = join(temp.path, `killed-${nth}`);
    await cp(dir, again, { recursive: true });
    const killed = await startService({ dir: again, fs: killedAt(nth) }).catch(() => undefined);
    await Promise.resolve(killed?.[Symbol.asyncDispose]()).catch(() => undefined);
    await session(again, async (kms) => {
      assert.equal((await sign(kms, kid)).status, 200, `call ${nth}`);
      assert.equal((await kms.get('/audit/keys')).json.origin, next);
      const entries = await entriesOf(kms);
      assert.deepEqual(
        entries.map(({ op }, index) => [index, op]).filter(([, op]) => op === 'accept'),
        [[0, 'accept']],
        `call ${nth}`,
      );
      roots.add(hash('sha256', JSON.stringify(entries[0])));
    });
    assert.deepEqual(
      (await readdir(again)).filter((name) => name.startsWith('audit.')),
      ['audit.1'],
    );
    await assertVerifies(join(again, 'audit'));
    await assertVerifies(join(again, 'audit.1'));
  }
  assert.equal(roots.size, 1, 'every start writes the same first entry');
});

test('operations while the log was damaged leave a trace in the newest log, once it is restored', async () => {
  await using temp = await tempDir();
  const at = await site(temp.path);
  const newest = join(temp.path, 'newest');
  await cp(join(at.dir, 'audit'), newest, { recursive: true });
  await restore(at, 'audit');
  await session(at.dir, async (kms) => {
    assert.equal((await kms.post('/audience/rotate', { version: 1 })).status, 200);
  });
  await rm(join(at.dir, 'audit'), { recursive: true });
  await cp(newest, join(at.dir, 'audit'), { recursive: true });
  const interruptions = async (kms: TestKms): Promise<number> => {
    assert.equal((await sign(kms, at.kid)).status, 200);
    return (await entriesOf(kms)).filter(({ op }) => op === 'interrupted').length;
  };
  assert.equal(await session(at.dir, interruptions), 1);
  assert.equal(await session(at.dir, interruptions), 1, 'once');
});
