/** A witness cosigns only extensions of the checkpoint that it cosigned before, across every crash. */
import assert from 'node:assert/strict';
import { chmod, readdir, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { NEVER } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import { tempDir } from '@ron/testkit';
import { TransparencyLog } from '../log/log.ts';
import { parseVkey, renamedVkey, signCheckpoint, verifyNote, type NoteSigner } from '../note/note-key.ts';
import { formatNote, parseNote, parseSignature } from '../note/note.ts';
import { successorOf } from '../note/successor.ts';
import { memorySigner } from '../testing/index.ts';
import { leafHash } from '../tree/hash.ts';
import { Cosigner } from './cosigner.ts';
import { Witness } from './witness.ts';

const ORIGIN = 'example.com/audit';
const signer = memorySigner(ORIGIN);

async function dirFor(t: TestContext): Promise<string> {
  const temp = await tempDir();
  t.after(() => temp[Symbol.asyncDispose]());
  return join(temp.path, 'witness');
}

/** A log, and `body`, which makes the request for a size. */
async function logOf(t: TestContext, text = 'entry', { origin = ORIGIN, by = signer } = {}) {
  const temp = await tempDir();
  const log = await TransparencyLog.open({ dir: temp.path, origin, signers: [by], signal: NEVER });
  t.after(async () => {
    await log.close();
    await temp[Symbol.asyncDispose]();
  });
  const grow = async (size: number): Promise<string> => {
    const entries = Array.from({ length: size - log.size }, (_, at) => Buffer.from(`${text} ${log.size + at}`));
    if (entries.length > 0) await log.append(entries, NEVER);
    return (await log.writeCheckpoint(NEVER)).text;
  };
  const body = async (old: number, size: number): Promise<string> => {
    const checkpoint = await grow(size);
    const proof = old > size ? [] : await log.consistency(old, size);
    return `old ${old}\n${proof.map((hash) => `${Buffer.from(hash).toString('base64')}\n`).join('')}\n${checkpoint}`;
  };
  return { log, grow, body };
}

const open = (dir: string, more: Partial<Parameters<typeof Cosigner.open>[0]> = {}): Promise<Cosigner> =>
  Cosigner.open({ dir, logs: [signer.vkey], ...more });

/** The checkpoint text with the cosignature. Throws unless the witness's key signed it. */
function cosigned(checkpoint: string, lines: string, vkey: string): void {
  const signatures = lines.trimEnd().split('\n').map(parseSignature);
  const note = parseNote(formatNote({ text: parseNote(checkpoint).text, signatures }));
  assert.equal(verifyNote(note, [parseVkey(vkey)]).length, 1);
}

test('each answer of the protocol', async (t) => {
  await using cosigner = await open(await dirFor(t));
  const { log, body } = await logOf(t);
  const first = await body(0, 5);
  const ok = await cosigner.add(first, NEVER);
  assert.equal(ok.status, 200);
  cosigned(log.checkpoint!.text, ok.text, cosigner.vkey);
  assert.equal((await cosigner.add(await body(5, 5), NEVER)).status, 200, 'the same checkpoint again');
  assert.deepEqual(await cosigner.add(first, NEVER), { status: 409, media_type: 'text/x.tlog.size', text: '5\n' });
  assert.equal((await cosigner.add(await body(5, 300), NEVER)).status, 200);
  assert.equal((await cosigner.add(await body(5, 300), NEVER)).text, '300\n');

  const fork = await logOf(t, 'other');
  assert.equal((await cosigner.add(await fork.body(300, 300), NEVER)).text, '300\n', 'another root of the same size');
  assert.equal((await cosigner.add(await fork.body(300, 301), NEVER)).status, 422, 'no extension');
  assert.equal((await cosigner.add(await body(301, 300), NEVER)).status, 400, 'a smaller checkpoint');
  const stranger = await logOf(t, 'entry', { by: memorySigner(ORIGIN) });
  assert.equal((await cosigner.add(await stranger.body(0, 5), NEVER)).status, 403);
  const elsewhere = { origin: 'example.com/other', by: memorySigner('example.com/other') };
  assert.equal((await cosigner.add(await (await logOf(t, 'entry', elsewhere)).body(0, 5), NEVER)).status, 404);

  const good = await body(300, 301);
  const bad = [
    '',
    '\n\n',
    good.replace('old 300', 'old 0300'),
    good.replace('old 300', 'old -1'),
    good.replace('old 300', 'new 300'),
    good.replace('old 300\n', 'old 300\n!!!!\n'),
    good.replace('old 300\n', `old 300\n${'AAAA\n'.repeat(3)}`),
    good.replace('old 300\n', `old 300\n${`${Buffer.alloc(32).toString('base64')}\n`.repeat(64)}`),
    good.replace('\n\n', '\n'),
    good.slice(0, -1),
    good.replace('\u2014', '-'),
  ];
  for (const text of bad) assert.equal((await cosigner.add(text, NEVER)).status, 400, JSON.stringify(text));
  assert.equal((await cosigner.latest(ORIGIN))?.size, 300, 'no refusal changed the record');
  assert.equal((await cosigner.add(good, NEVER)).status, 200);
});

test('the key and the records survive a restart; a damaged or exposed one is not replaced', async (t) => {
  const dir = await dirFor(t);
  const { body } = await logOf(t);
  let vkey: string;
  {
    await using cosigner = await open(dir, { name: 'w.example/1' });
    ({ vkey } = cosigner);
    assert.equal((await cosigner.add(await body(0, 9), NEVER)).status, 200);
    await assert.rejects(open(dir), { code: 'conflict' }, 'one process at a time');
  }
  assert.equal((await stat(join(dir, 'key'))).mode & 0o777, 0o600);
  {
    await using cosigner = await open(dir);
    assert.equal(cosigner.vkey, vkey);
    assert.equal((await cosigner.add(await body(0, 9), NEVER)).text, '9\n');
  }
  await assert.rejects(open(dir, { name: 'w.example/2' }), /the name of this witness is w\.example\/1/);
  await assert.rejects(open(dir, { logs: [] }), { code: 'validation' });
  const [record] = await readdir(join(dir, 'logs'));
  {
    await using cosigner = await open(dir);
    await writeFile(join(dir, 'logs', record!), 'nonsense');
    await assert.rejects(cosigner.add(await body(0, 10), NEVER), { code: 'integrity' });
    await writeFile(join(dir, 'logs', record!), `other\n0\n${Buffer.alloc(32).toString('base64')}\n`);
    await assert.rejects(cosigner.add(await body(0, 10), NEVER), { code: 'integrity' });
  }
  await writeFile(join(dir, 'key'), 'PRIVATE+KEY+x+00000000+AAAA\n', { mode: 0o600 });
  await chmod(join(dir, 'key'), 0o600);
  await assert.rejects(open(dir), /key is damaged/);
});

test('a log that began again is known by the same key, and only under the name of a successor', async (t) => {
  const dir = await dirFor(t);
  await using cosigner = await open(dir);
  const submit = async (origin: string, by: NoteSigner): Promise<number> =>
    (await cosigner.add(await (await logOf(t, 'entry', { origin, by })).body(0, 3), NEVER)).status;
  const renamed = (name: string): NoteSigner => ({ ...signer, name, vkey: renamedVkey(signer.vkey, name) });
  const hex = '0123456789abcdef';
  for (const [suffix, status] of [
    [`/${hex}`, 200],
    [successorOf(''), 200],
    ['/1', 404],
    [`/${hex.slice(1)}`, 404],
    [`/${hex}0`, 404],
    [`/${hex.toUpperCase()}`, 404],
    [`/${hex}/${hex}`, 404],
    [hex, 404],
  ] as const)
    assert.equal(await submit(ORIGIN + suffix, renamed(ORIGIN + suffix)), status, suffix);
  const other = successorOf(ORIGIN);
  assert.equal(await submit(other, memorySigner(other)), 403, 'another key');
  assert.equal((await readdir(join(dir, 'logs'))).length, 2);
});

test('a key is trusted for 99 successors; a further one needs its own key', async (t) => {
  const dir = await dirFor(t);
  const signed = async (origin: string, by?: NoteSigner): Promise<string> => {
    const checkpoint = { origin, size: 1, root: leafHash(Buffer.from(origin)) };
    const renamed = { ...signer, name: origin, vkey: renamedVkey(signer.vkey, origin) };
    return `old 0\n\n${await signCheckpoint(checkpoint, [by ?? renamed], NEVER)}`;
  };
  const origins = Array.from({ length: 100 }, () => successorOf(ORIGIN));
  const last = origins.pop()!;
  {
    await using cosigner = await open(dir);
    for (const origin of origins) assert.equal((await cosigner.add(await signed(origin), NEVER)).status, 200);
    assert.equal((await cosigner.add(await signed(last), NEVER)).status, 507);
    assert.equal((await cosigner.add(await signed(origins[0]!), NEVER)).status, 409, 'a known one goes on');
    assert.equal((await cosigner.add(await signed(ORIGIN), NEVER)).status, 200, 'the log itself is not counted');
  }
  const own = memorySigner(last);
  await using cosigner = await open(dir, { logs: [signer.vkey, own.vkey] });
  assert.equal((await cosigner.add(await signed(last), NEVER)).status, 403, 'its own key replaces the former one');
  assert.equal((await cosigner.add(await signed(last, own), NEVER)).status, 200);
});

test('a clock that is an hour ahead or behind changes nothing but the time stamp', async (t) => {
  await using cosigner = await open(await dirFor(t));
  const { log, body } = await logOf(t);
  const now_ms = Date.now();
  let size = 0;
  for (const off_ms of [0, 3_600_000, -3_600_000, 0]) {
    t.mock.timers.enable({ apis: ['Date'], now: now_ms + off_ms });
    const { status, text } = await cosigner.add(await body(size, size + 2), NEVER);
    t.mock.timers.reset();
    assert.equal(status, 200);
    cosigned(log.checkpoint!.text, text, cosigner.vkey);
    size += 2;
  }
});

test('of two forks that are submitted at the same time, one is cosigned', async (t) => {
  await using cosigner = await open(await dirFor(t));
  const [one, two] = [await logOf(t, 'one'), await logOf(t, 'two')];
  for (let old = 0; old < 5; old++) {
    const bodies = [await one.body(0, 5 + old), await two.body(0, 5 + old)];
    const answers = await Promise.all([...bodies, ...bodies].map((each) => cosigner.add(each, NEVER)));
    assert.equal(answers.filter(({ status }) => status === 200).length, old === 0 ? 1 : 0);
  }
});

/** A disk on which every call from the `nth` on fails, as if the process had been killed before it. */
function killedAt(nth: number): FileSystem {
  let calls = 0;
  const counted = <A extends unknown[], R>(call: (...args: A) => Promise<R>) => {
    return async (...args: A): Promise<R> => {
      calls += 1;
      if (calls > nth) throw Object.assign(new Error('killed'), { code: 'EIO' });
      return await call(...args);
    };
  };
  const wrapped = async (opening: Promise<Awaited<ReturnType<FileSystem['create']>>>) => {
    const file = await opening;
    return Object.assign(Object.create(file) as typeof file, {
      write: counted(file.write.bind(file)),
      sync: counted(file.sync.bind(file)),
      read: file.read.bind(file),
      size: file.size.bind(file),
      close: file.close.bind(file),
    });
  };
  return {
    ...realFileSystem,
    create: counted((path) => wrapped(realFileSystem.create(path))),
    open: (path, access) => wrapped(realFileSystem.open(path, access)),
    list: realFileSystem.list.bind(realFileSystem),
    makeDir: realFileSystem.makeDir.bind(realFileSystem),
    remove: realFileSystem.remove.bind(realFileSystem),
    rename: counted(realFileSystem.rename.bind(realFileSystem)),
    syncDir: counted(realFileSystem.syncDir.bind(realFileSystem)),
    lock: realFileSystem.lock!.bind(realFileSystem),
  };
}

test('killed before any disk call of a submission: after the restart no other root of a cosigned size is cosigned', async (t) => {
  const [one, two] = [await logOf(t, 'one'), await logOf(t, 'two')];
  let cosignedFirst = 0;
  for (let nth = 0; nth < 8; nth++) {
    const dir = await dirFor(t);
    await (await open(dir)).close();
    const signed: string[] = [];
    const submit = async (cosigner: Cosigner, fork: typeof one): Promise<void> => {
      const { size: old = 0 } = (await cosigner.latest(ORIGIN)) ?? {};
      const body = await fork.body(old, 7);
      const answer = await cosigner.add(body, NEVER).catch(() => undefined);
      if (answer?.status === 200) signed.push(fork.log.checkpoint!.text);
    };
    {
      await using cosigner = await open(dir, { fs: killedAt(nth) });
      await submit(cosigner, one);
    }
    cosignedFirst += signed.length;
    await using cosigner = await open(dir);
    await submit(cosigner, two);
    await submit(cosigner, one);
    assert.ok(new Set(signed).size <= 1, `call ${nth}: both forks were cosigned`);
    assert.ok(signed.length > 0, `call ${nth}: one of the forks is cosigned at last`);
  }
  assert.ok(cosignedFirst > 0 && cosignedFirst < 8, 'some submissions were killed, some not');
});

test('a client reaches a witness at a Unix socket, and learns of one that is absent or floods', async (t) => {
  const dir = await dirFor(t);
  await using cosigner = await open(dir);
  const socket = join(dir, 's');
  const { log, grow } = await logOf(t);
  await grow(20);
  const witness = new Witness({ url: `unix:${socket}`, vkeys: [cosigner.vkey] });
  const cosign = () => witness.cosign(log.checkpoint!, (from, to) => log.consistency(from, to), NEVER);
  await assert.rejects(cosign(), { code: 'unreachable', message: /no server answers at the socket/ });
  let flood = false;
  const server = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      const { status, text } = await cosigner.add(Buffer.concat(pieces).toString('utf8'), NEVER);
      response.writeHead(status).end(flood ? 'x'.repeat(100_000) : text);
    })();
  });
  await new Promise<void>((resolve) => void server.listen(socket, resolve));
  t.after(() => server.close());
  const { signed_by } = await cosign();
  assert.deepEqual(signed_by, [cosigner.vkey]);
  flood = true;
  await assert.rejects(cosign(), { code: 'payload_too_large' });
});
